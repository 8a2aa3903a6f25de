"""Exceptions that a signal handler raised in a place that cannot raise: raised a moment later."""

from __future__ import annotations

import _thread
import ctypes
import threading

DELAY_S = 0.001


def raise_in_thread(error: BaseException) -> None:
    """Raise `error` in the calling thread again, in about a millisecond, wherever it then is."""
    thread = threading.get_ident()

    def deliver() -> None:
        if isinstance(error, KeyboardInterrupt):
            _thread.interrupt_main()
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread), ctypes.py_object(_same(error))
            )

    timer = threading.Timer(DELAY_S, deliver)
    timer.daemon = True
    timer.start()


def _same(error: BaseException) -> type[BaseException]:
    """A class whose instances, made without arguments as the interpreter does, are like `error`."""
    kind = type(error)

    class Same(kind):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            kind.__init__(self, *error.args)

    Same.__name__, Same.__qualname__, Same.__module__ = (
        kind.__name__,
        kind.__qualname__,
        kind.__module__,
    )
    return Same
