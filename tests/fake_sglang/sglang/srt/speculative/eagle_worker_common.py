def build_eagle_verify_input(batch: object, *more: object) -> object:
    return batch
