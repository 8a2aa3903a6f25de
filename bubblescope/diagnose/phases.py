"""Prefill told from decode: by what engines call their steps, else by the kernels in them."""

from __future__ import annotations

import re

import numpy as np

from bubblescope.diagnose.model import Markers, Phase
from bubblescope.diagnose.names import generic
from bubblescope.timeline import Timeline
from bubblescope.timeline.intervals import Mask
from bubblescope.timeline.tables import Int

FEW = 5
"""With fewer steps than this, their kernels do not tell which of them are like the others."""

# SGLang: step[EXTEND bs=2 toks=4096]. Its draft model's extend belongs to a decode step.
_SGLANG = re.compile(r"^step\[(\w+)")
_PREFILLS = frozenset({"EXTEND", "MIXED", "SPLIT_PREFILL", "PREFILL"})
_NO_WORK = frozenset({"IDLE", "DUMMY_FIRST", "PREBUILT"})
# vLLM: execute_..._context_1(...)_generation_32(...): requests in each.
_VLLM = re.compile(r"^execute_\w*?context_(\d+)\(.*\)_generation_(\d+)\(")
# TensorRT-LLM: [Executor] _forward_step 12: 1 ctx reqs, 512 ctx tokens, 31 gen reqs
_TENSORRT = re.compile(r"_forward_step\b.*?\b(\d+) ctx reqs,.*?\b(\d+) gen reqs")
_WORD = re.compile(r"(?<![a-z])(prefill|decode)(?![a-z])", re.IGNORECASE)


def stated(name: str) -> Phase:
    """The phase that the name of an annotation states; a step of both is a prefill."""
    if (found := _SGLANG.match(name)) is not None:
        mode = found[1]
        if mode in _NO_WORK or not mode.isupper():
            return Phase.NOT_TOLD
        return Phase.PREFILL if mode in _PREFILLS else Phase.DECODE
    if (found := _VLLM.match(name) or _TENSORRT.search(name)) is not None:
        prefills, decodes = int(found[1]), int(found[2])
        if prefills:
            return Phase.PREFILL
        return Phase.DECODE if decodes else Phase.NOT_TOLD
    words = {word.lower() for word in _WORD.findall(name)}
    if len(words) == 1:
        return Phase.PREFILL if words == {"prefill"} else Phase.DECODE
    return Phase.NOT_TOLD


def series(name: str) -> str:
    """One name for the steps of an engine, whatever they hold: "step[...]"."""
    if _SGLANG.match(name):
        return "step[...]" if stated(name) is not Phase.NOT_TOLD else generic(name)
    if _VLLM.match(name):
        return "execute_context_#_generation_#"
    if _TENSORRT.search(name):
        return "_forward_step"
    return generic(name)


def is_engine_step(name: str) -> bool:
    """Whether an engine calls one step so; a plain "decode" may be a whole loop."""
    by_engine = _SGLANG.match(name) or _VLLM.match(name) or _TENSORRT.search(name)
    return bool(by_engine) and stated(name) is not Phase.NOT_TOLD


def of_markers(timeline: Timeline, owners: Int, markers: Markers) -> Int:
    """The phase of each marker's step by the annotations that begin in it, shape (markers,).

    An annotation around several markers says nothing of one of them.

    owners: the small id of (rank, process) of every range, as in `Markers.owner`.
    """
    phase = np.full(len(markers.start), Phase.NOT_TOLD, np.int64)
    ranges = timeline.ranges
    names = [stated(name) for name in ranges.name.values]
    if not any(names):
        return phase
    table = np.array(names, np.int64)
    annotation = ranges.kind.where(lambda kind: kind == "annotation")
    rows = np.flatnonzero(annotation & (table[ranges.name.codes] != Phase.NOT_TOLD))
    for who in np.unique(markers.owner).tolist():
        first, stop = np.searchsorted(markers.owner, [who, who + 1]).tolist()
        mine = rows[owners[rows] == who]
        begins = markers.start[first:stop]
        at = np.searchsorted(begins, ranges.start[mine], "right") - 1
        last = np.searchsorted(begins, ranges.end[mine], "left") - 1
        usable = (at >= 0) & (last <= at)
        # Of several, PREFILL is the larger: decode work in a prefill step does not make it decode.
        np.maximum.at(phase, first + at[usable], table[ranges.name.codes[mine[usable]]])
    return phase


def by_kernels(timeline: Timeline, rows: slice, step: Int, whole: Mask) -> Mask:
    """Which steps spend most of their time in operations that the usual step does not have.

    step: which step each operation (rows of `device_ops`) belongs to, -1 for none. whole: the
    steps to tell from; too few of them tell nothing. What is usual is in half of them at least.
    """
    unlike = np.zeros(len(whole), np.bool_)
    if whole.sum() < FEW:
        return unlike
    ops = timeline.device_ops
    names = ops.name.codes[rows]
    inside = step >= 0
    there = np.zeros((len(whole), len(ops.name.values)), np.bool_)
    there[step[inside], names[inside]] = True
    usual = 2 * there[whole].sum(axis=0) >= whole.sum()
    long = ops.end[rows] - ops.start[rows]
    total, others = np.zeros((2, len(whole)), np.int64)
    np.add.at(total, step[inside], long[inside])
    odd = inside & ~usual[names]
    np.add.at(others, step[odd], long[odd])
    return 2 * others > total


__all__ = ["by_kernels", "is_engine_step", "of_markers", "series", "stated"]
