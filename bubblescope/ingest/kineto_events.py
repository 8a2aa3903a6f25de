"""Kineto JSON events to columns: the typed decode, in chunks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, Union

import msgspec
import numpy as np
import numpy.typing as npt

from bubblescope.ingest.codes import Codes, integers
from bubblescope.ingest.decimals import to_ns
from bubblescope.ingest.growing import Growing
from bubblescope.ingest.mend import blank_no_numbers, mend

# What an event of a category is. The order matters: up to MEMSET a device operation, up to SYNC
# an event whose arguments count.
OTHER, KERNEL, MEMCPY, GRAPH, MEMSET, CALL, SYNC = range(7)
ANNOTATION, OP, PYTHON, OVERHEAD, STEP, OS = range(7, 13)

KINDS = {
    "kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "cuda_runtime": CALL,
    "cuda_driver": CALL,
    "xpu_runtime": CALL,
    "xpu_driver": CALL,
    "privateuse1_runtime": CALL,
    "privateuse1_driver": CALL,
    "cuda_sync": SYNC,
    "user_annotation": ANNOTATION,
    "cpu_op": OP,
    "python_function": PYTHON,
    "overhead": OVERHEAD,
    # PyTorch before 1.12
    "memcpy": MEMCPY,
    "memset": MEMSET,
    "runtime": CALL,
    "operator": OP,
    # bubblescope's own export
    "bubblescope_graph": GRAPH,
    "bubblescope_step": STEP,
    "bubblescope_os": OS,
}
"""Kind of each category, in lower case; every other category is OTHER."""

MISSING = np.iinfo(np.int64).min
"""Stands in a column of times for one that could not be read."""

_ABSENT = msgspec.Raw()
_MERGED = re.compile(r"(\[[A-Z]+[0-9]+(?:-[A-Z]+[0-9]+)*\]) ")
"""What SGLang puts before the process ids of each rank that it merges: "[TP00-DP01] 4711"."""


class _Args(msgspec.Struct, gc=False):
    """The arguments that are used, of any type that a file may give them."""

    device: Any = -1
    stream: Any = -1
    correlation: Any = -1
    bytes: Any = -1
    graph: Any = msgspec.field(default=-1, name="graph id")
    node: Any = msgspec.field(default=-1, name="graph node id")
    grid: msgspec.Raw = _ABSENT
    block: msgspec.Raw = _ABSENT
    own: Any = msgspec.field(default=None, name="bubblescope")
    stack: Any = msgspec.field(default="", name="Call stack")
    sync: Any = msgspec.field(default="", name="cuda_sync_kind")
    wait_stream: Any = msgspec.field(default=-1, name="wait_on_stream")
    wait_record: Any = msgspec.field(default=-1, name="wait_on_cuda_event_record_corr_id")
    collective: Any = msgspec.field(default="", name="Collective name")
    group: Any = msgspec.field(default="", name="Process Group Name")
    ranks: Any = msgspec.field(default="", name="Process Group Ranks")
    sequence: Any = msgspec.field(default=-1, name="Seq")


class _Span(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An event with a duration. Times stay text, since a float cannot hold them."""

    cat: str = ""
    name: str = ""
    pid: Any = -1
    tid: Any = -1
    ts: msgspec.Raw = _ABSENT
    dur: msgspec.Raw = _ABSENT
    args: _Args | None = None


class _LabelArgs(msgspec.Struct, gc=False):
    name: Any = ""


class Label(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """A metadata event: the name of a process or thread, among others."""

    name: str = ""
    pid: Any = -1
    tid: Any = -1
    args: _LabelArgs | None = None


# Every other phase of the format is told by its tag alone, and nothing of it is built.
_IGNORED = [
    msgspec.defstruct(f"_Phase{i}", [], tag_field="ph", tag=phase, gc=False)
    for i, phase in enumerate("BEIiCbnestfSTpFPNODVvRc(),=")
]
_Begin = _IGNORED[0]
_Event: Any = Union[(_Span, Label, *_IGNORED)]
_decode_list = msgspec.json.Decoder(list[_Event]).decode
_decode_pieces = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_NO_ARGS = _Args()


@dataclass(slots=True)
class Events:
    """The rows that count, in the order of the file.

    Columns of all rows: `kind`, `name` (codes into `names`), `pid`, `tid`, and `start` and
    `duration` in ns on the file's own clock (or MISSING); where there are `stacks`, also `stack`
    (codes into them, or -1). `calls`, `ops` and `syncs` hold the
    arguments of the rows of that kind, in the same order (of `ops`, `shape` is a code into
    `shapes`: the text of a kernel's grid and block), and `own` what our own export adds to
    calls, by row among them. `comms` says of some of the `ops` (`row`) which of `collectives`
    (`code`; pairs of name and group) they belong to. `merged` are the ranks of a file that was
    merged of several, and `part` (in `columns`) says which of them each row is of. `total` counts
    all events, `pairs` begin events, as far as no event with a duration is near; `mended` and `odd`
    events that were put right, or read without some of their fields, `no_numbers` values that are
    NaN or Infinity.
    """

    columns: dict[str, npt.NDArray[Any]]
    ops: dict[str, npt.NDArray[np.int64]]
    calls: dict[str, npt.NDArray[np.int64]]
    syncs: dict[str, npt.NDArray[Any]]
    comms: dict[str, npt.NDArray[Any]]
    own: list[tuple[int, dict[str, Any]]]
    names: list[str]
    stacks: list[str]
    sync_kinds: list[str]
    collectives: list[tuple[str, str]]
    shapes: list[str]
    labels: list[Label]
    merged: list[str]
    categories: dict[str, int]
    total: int
    pairs: int
    mended: int
    odd: int
    no_numbers: int

    def parts(self) -> Iterator[tuple[str, Events]]:
        """The rows of each rank of a merged file; what is counted is with the first."""
        kind, part = self.columns["kind"], self.columns.pop("part")
        op, call, sync = kind <= MEMSET, kind == CALL, kind == SYNC
        for number, label in enumerate(self.merged):
            mine = part == number
            at = np.cumsum(mine[op]) - 1  # the new row of each operation
            comms = {
                name: column[mine[op][self.comms["row"]]] for name, column in self.comms.items()
            }
            if comms:
                comms["row"] = at[comms["row"]]
            yield (
                label,
                replace(
                    self,
                    columns={name: column[mine] for name, column in self.columns.items()},
                    ops={name: column[mine[op]] for name, column in self.ops.items()},
                    calls={name: column[mine[call]] for name, column in self.calls.items()},
                    syncs={name: column[mine[sync]] for name, column in self.syncs.items()},
                    comms=comms,
                    own=[],
                    labels=[e for e in self.labels if str(e.pid).startswith(label)],
                    merged=[],
                    mended=0 if number else self.mended,
                    odd=0 if number else self.odd,
                ),
            )

    def forget(self) -> None:
        """Drop the columns: the tables are made."""
        for columns in (self.columns, self.ops, self.calls, self.syncs, self.comms):
            columns.clear()


def decode(stretches: Iterable[bytes]) -> Events:
    """Columns of the events in `stretches`: lists of events as text.

    Raises:
        msgspec.DecodeError: a stretch is not valid JSON, and no NaN or Infinity is the reason.
    """
    collector = _Collector()
    for text in stretches:
        try:
            collector.add(text)
        except msgspec.DecodeError:
            content = bytearray(text)
            collector.no_numbers += blank_no_numbers(content)
            collector.add(bytes(content))
    return collector.done()


def _usable(event: bytes | msgspec.Raw) -> bytes:
    """An event without the fields that are of no use in it, and so in its arguments.

    These are a name that is no text, arguments that are no object, a number that no float holds.
    """
    kept: dict[str, msgspec.Raw] = {}
    for name, value in _decode_fields(event).items():
        with suppress(msgspec.MsgspecError):
            if name == "args":
                value = msgspec.Raw(_usable(value))
            else:
                msgspec.json.decode(value, type=str if name in ("ph", "cat", "name") else Any)
            kept[name] = value
    return msgspec.json.encode(kept)


@dataclass(slots=True)
class _Collector:
    """Columns as they grow, chunk by chunk."""

    names: Codes = field(default_factory=Codes)
    stacks: Codes = field(default_factory=Codes)
    rows: int = 0
    calls: int = 0
    own: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    ops: int = 0
    sync_kinds: Codes = field(default_factory=Codes)
    collectives: Codes = field(default_factory=Codes)
    shapes: Codes = field(default_factory=Codes)
    categories: Codes = field(default_factory=Codes)
    merged: Codes = field(default_factory=Codes)
    kinds: npt.NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    seen: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    labels: list[Label] = field(default_factory=list)
    total: int = 0
    pairs: int = 0
    mended: int = 0
    odd: int = 0
    no_numbers: int = 0
    columns: dict[str, Growing] = field(default_factory=dict)

    def add(self, text: bytes) -> None:
        """Add the events of a list."""
        events = self._decoded(text)
        self.total += len(events)
        if Label in map(type, events):
            self.labels += [e for e in events if type(e) is Label]
        spans: list[_Span] = [e for e in events if type(e) is _Span]
        if not spans and not self.rows:
            self.pairs += sum(type(e) is _Begin for e in events)
        kind = self._kind(spans)
        kept = kind != OTHER
        spans, kind = list(compress(spans, kept.tolist())), kind[kept]
        if spans:
            self._common(spans, kind)
            self._arguments(spans, kind)
            self._stacks(spans, kind)
            self.rows += len(spans)

    def _decoded(self, text: bytes) -> list[Any]:
        with suppress(msgspec.MsgspecError):
            events: list[Any] = _decode_list(text)
            return events
        # None of the events that cannot be decoded is lost to the count.
        return list(map(self._single, _decode_pieces(text)))

    def _single(self, piece: msgspec.Raw) -> Any:
        """One event; None where it is none, or of a phase that there is not."""
        with suppress(msgspec.MsgspecError):
            return _decode_event(piece)
        made = mend(bytes(piece))
        with suppress(msgspec.MsgspecError):
            event = _decode_event(made.text) if made else None
            self.mended += event is not None
            return event
        with suppress(msgspec.MsgspecError):
            event = _decode_event(_usable(made.text if made else piece))
            self.odd += 1
            return event
        return None

    def _kind(self, spans: list[_Span]) -> npt.NDArray[np.int8]:
        category = self.categories.column([e.cat for e in spans])
        if len(self.kinds) < len(self.categories):
            new = list(self.categories)[len(self.kinds) :]
            more = np.array([KINDS.get(c.lower(), OTHER) for c in new], np.int8)
            self.kinds = np.concatenate([self.kinds, more])
            self.seen = np.concatenate([self.seen, np.zeros(len(new), np.int64)])
        self.seen += np.bincount(category, minlength=len(self.categories))
        return self.kinds[category]

    def _common(self, spans: list[_Span], kind: npt.NDArray[np.int8]) -> None:
        ns, readable = to_ns([e.ts for e in spans] + [e.dur for e in spans])
        ns[~readable] = MISSING
        self._merged(spans)
        self._put(
            kind=kind,
            name=self.names.column([e.name for e in spans]),
            pid=integers([e.pid for e in spans]),
            tid=integers([e.tid for e in spans]),
            start=ns[: len(spans)],
            duration=ns[len(spans) :],
        )

    def _merged(self, spans: list[_Span]) -> None:
        """Which rank each row is of, where all of the file say so."""
        if self.rows and not self.merged:
            return
        found = [_MERGED.match(e.pid) if type(e.pid) is str else None for e in spans]
        if all(found) and found:
            self._put(part=self.merged.column([m[1] for m in found if m]))
        elif found:
            self.merged.clear()
            self.columns.pop("part", None)

    def _arguments(self, spans: list[_Span], kind: npt.NDArray[np.int8]) -> None:
        args = [e.args or _NO_ARGS for e in compress(spans, (kind <= SYNC).tolist())]
        kind = kind[kind <= SYNC]
        calls = list(compress(args, (kind == CALL).tolist()))
        self._put(call_correlation=integers([a.correlation for a in calls]))
        own = [a.own for a in calls]
        if any(own):
            self.own += [(n, x) for n, x in enumerate(own, self.calls) if type(x) is dict]
        self.calls += len(calls)
        ops = list(compress(args, (kind <= MEMSET).tolist()))
        self._put(
            op_device=integers([a.device for a in ops]),
            op_stream=integers([a.stream for a in ops]),
            op_correlation=integers([a.correlation for a in ops]),
            op_bytes=integers([a.bytes for a in ops]),
            op_graph=integers([a.graph for a in ops]),
            op_node=integers([a.node for a in ops]),
            op_shape=self.shapes.raw_column([(a.grid, a.block) for a in ops]),
        )
        self._collectives(ops)
        syncs = list(compress(args, (kind == SYNC).tolist()))
        self._put(
            sync_kind=self.sync_kinds.column([str(a.sync) for a in syncs]),
            sync_correlation=integers([a.correlation for a in syncs]),
            sync_stream=integers([a.stream for a in syncs]),
            sync_wait_stream=integers([a.wait_stream for a in syncs]),
            sync_wait_record=integers([a.wait_record for a in syncs]),
        )

    def _stacks(self, spans: list[_Span], kind: npt.NDArray[np.int8]) -> None:
        """Few files have call stacks as text: rows and codes of those that are there."""
        may = (kind == OP) | (kind == ANNOTATION)
        if self.own:  # nobody else gives calls a stack
            may |= kind == CALL
        args = [e.args or _NO_ARGS for e in compress(spans, may.tolist())]
        texts = [a.stack for a in args]
        if any(texts):
            known = [bool(t) and isinstance(t, str) for t in texts]
            self._put(
                stack_row=self.rows + np.flatnonzero(may)[known],
                stack_code=self.stacks.column(list(compress(texts, known))),
            )

    def _collectives(self, ops: list[_Args]) -> None:
        """What is said of collectives; few operations are any."""
        names = [a.collective for a in ops]
        if any(names):
            rows = [row for row, name in enumerate(names) if name and isinstance(name, str)]
            said = [f"{a.collective}\n{a.group} {a.ranks}".rstrip() for a in (ops[r] for r in rows)]
            self._put(
                comm_row=self.ops + np.array(rows, np.int64),
                comm_code=self.collectives.column(said),
                comm_sequence=integers([ops[row].sequence for row in rows]),
            )
        self.ops += len(ops)

    def _put(self, **columns: npt.NDArray[Any]) -> None:
        for name, values in columns.items():
            if name not in self.columns:
                self.columns[name] = Growing(values)
            self.columns[name].add(values)

    def done(self) -> Events:
        if not self.columns:
            self._common([], np.zeros(0, np.int8))
            self._arguments([], np.zeros(0, np.int8))
        if len(self.merged) < 2:
            self.columns.pop("part", None)
        columns = {name: column.done() for name, column in self.columns.items()}

        def group(prefix: str) -> dict[str, npt.NDArray[Any]]:
            return {
                name.removeprefix(prefix): columns.pop(name)
                for name in list(columns)
                if name.startswith(prefix)
            }

        if self.stacks:
            stack = columns["stack"] = np.full(self.rows, -1, np.int32)
            stack[columns.pop("stack_row")] = columns.pop("stack_code")
        return Events(
            ops=group("op_"),
            calls=group("call_"),
            syncs=group("sync_"),
            comms=group("comm_"),
            own=self.own,
            columns=columns,
            names=list(self.names),
            stacks=list(self.stacks),
            sync_kinds=list(self.sync_kinds),
            collectives=[(t.partition("\n")[0], t.partition("\n")[2]) for t in self.collectives],
            shapes=list(self.shapes),
            labels=self.labels,
            merged=list(self.merged) if len(self.merged) > 1 else [],
            categories=dict(zip(self.categories, self.seen.tolist(), strict=True)),
            total=self.total,
            pairs=self.pairs,
            mended=self.mended,
            odd=self.odd,
            no_numbers=self.no_numbers,
        )
