from types import SimpleNamespace

_parallel = SimpleNamespace(tp_rank=0, tp_size=1)


def get_parallel() -> SimpleNamespace:
    return _parallel
