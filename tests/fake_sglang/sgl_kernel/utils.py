def is_arch_support_pdl() -> bool:
    return True
