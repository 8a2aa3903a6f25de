"""The one subscriber that a process may have: it says who holds CUPTI, and names call sites.

CUPTI calls back in the thread that made the CUDA call, with that thread's Python frames above,
so the line that called is at hand. The callback goes through ctypes, which makes no object but
its arguments.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, ClassVar

from bubblescope.capture import later
from bubblescope.capture.frames import is_framework
from bubblescope.errors import BubblescopeError

ENTER = 0
Row = tuple[int, CodeType, int]
"""Correlation id, code object and line of a call."""


class _CallbackData(ctypes.Structure):
    """CUpti_CallbackData of cupti_callbacks.h."""

    _fields_ = [
        ("site", ctypes.c_int),
        ("function_name", ctypes.c_char_p),
        ("function_params", ctypes.c_void_p),
        ("return_value", ctypes.c_void_p),
        ("symbol_name", ctypes.c_char_p),
        ("context", ctypes.c_void_p),
        ("context_uid", ctypes.c_uint32),
        ("correlation_data", ctypes.c_void_p),
        ("correlation_id", ctypes.c_uint32),
    ]


_CALLBACK = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(_CallbackData)
)


class Subscriber:
    """Holds CUPTI for this process from `open` to `close`; `sites` collects rows meanwhile."""

    _holder: ClassVar[Subscriber | None] = None

    def __init__(self, cupti: Any) -> None:
        self._cupti = cupti
        self._handle = 0
        self._params: Any = None
        self._on: list[tuple[int, int]] = []
        self.sites: list[Row] = []
        self._function = self._callback()
        self._called = _CALLBACK(self._function)
        self._hook: Callable[[Any], object] = sys.__unraisablehook__

    def open(self) -> None:
        """Become the subscriber of this process.

        Raises:
            BubblescopeError: somebody else is.
        """
        if Subscriber._holder is not None:
            raise BubblescopeError(
                "CUPTI is in use in this process already, by another bubblescope.trace: one "
                "recording at a time"
            )
        cupti = self._cupti
        params = cupti.SubscriberParams()
        params.struct_size = cupti.SUBSCRIBER_PARAMS_SIZE
        params.subscriber_name = "bubblescope"
        cupti.get_timestamp()  # loads the library that ctypes then finds by its soname
        library = ctypes.CDLL("libcupti.so.13")
        library.cuptiSubscribe_v2.argtypes = [
            ctypes.c_void_p,
            _CALLBACK,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]
        handle = ctypes.c_void_p()
        status = library.cuptiSubscribe_v2(ctypes.byref(handle), self._called, None, params.ptr)
        if status == cupti.Result.ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
            raise BubblescopeError(held(params.old_subscriber_name, "torch" in sys.modules))
        if status:
            name = cupti.Result(status).name
            raise BubblescopeError(f"CUPTI refused a subscriber ({name}); see `bubblescope doctor`")
        self._handle, self._params = handle.value or 0, params  # CUPTI keeps the name's address
        Subscriber._holder = self

    def watch(self, ids: list[tuple[int, int]]) -> None:
        """Note the call site of every call in `ids`, (domain, id), from now on."""
        self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        for domain, number in ids:
            self._cupti.enable_callback(1, self._handle, domain, number)
        self._on += ids

    def unwatch(self) -> None:
        """No more call sites."""
        if sys.unraisablehook == self._unraisable:
            sys.unraisablehook = self._hook
        for domain, number in self._on:
            self._cupti.enable_callback(0, self._handle, domain, number)
        self._on.clear()

    def close(self) -> None:
        """Give CUPTI back."""
        if self._handle:
            self.unwatch()
            self._cupti.unsubscribe(self._handle)
            self._handle = 0
            Subscriber._holder = None

    def _callback(self) -> Any:
        getframe = sys._getframe
        skip: dict[CodeType, bool] = {}

        def called(_user: Any, _domain: int, _number: int, data: Any) -> None:
            call = data[0]
            if call.site != ENTER:
                return
            frame = innermost = getframe().f_back
            while frame is not None:
                code = frame.f_code
                framework = skip.get(code)
                if framework is None:
                    framework = skip[code] = is_framework(code.co_filename)
                if not framework:
                    break
                frame = frame.f_back
            frame = frame or innermost
            if frame is not None:
                self.sites.append((call.correlation_id, frame.f_code, frame.f_lineno))

        return called

    def in_callback(self, frame: FrameType | None) -> bool:
        """Whether a frame is inside a callback of CUPTI's, where nothing of CUDA may be called."""
        while frame is not None:
            if frame.f_code is self._function.__code__:
                return True
            frame = frame.f_back
        return False

    def _unraisable(self, raised: Any) -> None:
        """What a signal handler raised in the callback, which ctypes can only print.

        A thread that waits in CUDA takes its signals in the first Python after that, and that is
        the callback: without this, Ctrl-C would be lost.
        """
        # Python 3.13 names the function in the message only.
        ours = raised.object is self._function or repr(self._function) in (raised.err_msg or "")
        if ours and raised.exc_value is not None:
            later.raise_in_thread(raised.exc_value)
        else:
            self._hook(raised)


def held(name: str, torch: bool) -> str:
    """One line for a process whose CUPTI somebody else holds."""
    who = name.removeprefix("CUPTI for ").strip("<>")
    by = f"by {who!r}" if who and who != "not provided" else "by a tool that gives no name"
    hint = " (torch.profiler keeps it once it has run)" if torch else ""
    return (
        f"CUPTI is in use in this process already, {by}{hint}: one tool at a time; "
        "switch the other off, or enter bubblescope.trace before it"
    )
