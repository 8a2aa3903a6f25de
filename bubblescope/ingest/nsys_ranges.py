"""What host threads of an Nsight Systems export did beside CUDA calls."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from bubblescope.ingest.nsys_places import Places, process_part, threads
from bubblescope.ingest.nsys_strings import Strings, labels
from bubblescope.ingest.nsys_times import plausible
from bubblescope.ingest.sqlite import NULL, Database
from bubblescope.timeline import Coded, Ranges
from bubblescope.timeline.tables import Int

NVTX = "NVTX_EVENTS"
_NAMED = {
    "OSRT_API": "os",
    "CUBLAS_EVENTS": "op",
    "CUDNN_EVENTS": "op",
    "PROFILER_OVERHEAD": "overhead",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "overhead",
}
"""Tables whose rows have a start, an end, a thread and a name, and the kind of range in each."""

# A queue that is full keeps the host waiting because the device is busy: that is no overhead.
_NO_OVERHEAD = re.compile("Command Buffer Full", re.IGNORECASE)
_RANGES = {59, 60, 70, 71}
_DOMAIN = 75
"""Types of NVTX events: push/pop and start/end ranges, and the row that names a domain."""

# torch.autograd.profiler.emit_nvtx writes an op's arguments into its name.
_EMITTED = re.compile(r",\s(?:seq|op_id|sizes|input_op_ids)\s?=\s.*", re.DOTALL)
_NCCL = re.compile(r"nccl[A-Z]")
_LIBRARIES = {
    "nccl",
    "cccl",
    "cub",
    "thrust",
    "cublas",
    "cublaslt",
    "cudnn",
    "cufft",
    "cusparse",
    "cusolver",
    "nvshmem",
    "ucx",
    "cupy",
    "libcudf",
    "rmm",
}
"""Domains that libraries write their own ranges in, in lower case."""


def parts(database: Database) -> Int:
    """The process parts of all threads that have ranges."""
    columns = [database.integers(t, "globalTid")[0] for t in (NVTX, *_NAMED) if t in database]
    return process_part(np.unique(np.concatenate(columns))) if columns else np.zeros(0, np.int64)


def read(database: Database, strings: Strings, places: Places, last: int) -> tuple[Ranges, int]:
    """All ranges, and the number of rows whose times cannot be true.

    last: when the recording ended, where ranges that were still open end.
    """
    made = [_nvtx(database, strings, places, last)] if NVTX in database else []
    for table, kind in _NAMED.items():
        if table not in database:
            continue
        start, end, thread, name = database.integers(table, "start", "end", "globalTid", "nameId")
        names = strings.column(name, "not named")
        if kind == "overhead":
            keep = ~names.where(lambda n: bool(_NO_OVERHEAD.search(n)))
            start, end, thread, names = start[keep], end[keep], thread[keep], names.take(keep)
        made.append(_table(places, start, end, thread, Coded.constant(kind, len(start)), names))
    whole = Ranges.concat(made) if made else Ranges.empty()
    good = plausible(whole.start, whole.end)
    return whole.take(good), int((~good).sum())


def _nvtx(database: Database, strings: Strings, places: Places, last: int) -> Ranges:
    """Ranges of NVTX: annotations of the program, and ops of the libraries that annotate theirs."""
    start, end, kind, thread, text_id, domain = database.integers(
        NVTX, "start", "end", "eventType", "globalTid", "textId", "domainId"
    )
    text = database.texts(NVTX, "text")
    registered = strings.column(text_id)
    kinds = _RANGES | {
        number
        for number, label in labels(database, "ENUM_NSYS_EVENT_TYPE").items()
        if label.endswith(("PushPopRange", "StartEndRange")) and label.startswith("Nvtx")
    }
    is_range = np.isin(kind, list(kinds)) | ((kind == NULL) & (end != NULL))
    has_text = text.where(bool)
    names = Coded.concat([text, registered])
    names = names.take(np.where(has_text, np.arange(len(text)), len(text) + np.arange(len(text))))

    owner = process_part(thread)
    of_library = np.zeros(len(start), np.bool_)
    for row in np.flatnonzero((kind == _DOMAIN) & names.where(lambda n: n.lower() in _LIBRARIES)):
        of_library |= (owner == owner[row]) & (domain == domain[row])
    of_library |= names.where(lambda n: bool(_NCCL.match(n)))
    is_op = of_library | names.where(_is_op)
    open_end = is_range & (end == NULL)
    end[open_end] = np.maximum(start, last)[open_end]
    plain = names.map(lambda n: _EMITTED.sub("", n) or "not named")
    return _table(
        places,
        start[is_range],
        end[is_range],
        thread[is_range],
        Coded(is_op[is_range].astype(np.int32), ("annotation", "op")),
        plain.take(is_range),
    )


def _is_op(name: str) -> bool:
    """An op of a framework has a name space, or the number of its backward pass."""
    found = _EMITTED.search(name)
    return found is not None and ("::" in name[: found.start()] or "seq" in found[0])


def _table(places: Places, start: Int, end: Int, thread: Int, kind: Coded, name: Coded) -> Ranges:
    owner: npt.NDArray[np.int64] = process_part(thread)
    return Ranges.build(
        len(start),
        rank=places.ranks(owner),
        process=places.processes(owner),
        thread=threads(thread),
        kind=kind,
        name=name,
        start=start,
        end=end,
    )
