def eagle_sample(verify: object, batch: object, logits: object) -> object:
    return logits


def verify_tree_greedy_func(**named: object) -> object:
    return named
