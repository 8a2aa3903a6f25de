"""What to say of a JSON file that holds nothing to diagnose."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bubblescope.errors import BubblescopeError
from bubblescope.ingest.kineto_events import KINDS, MEMSET, OP, PYTHON, Events
from bubblescope.ingest.source import refusal
from bubblescope.timeline import HostCalls
from bubblescope.timeline.api import is_graph_launch, is_kernel_launch

_READABLE = "what can be diagnosed is a PyTorch profiler trace of a CUDA or HIP device"
_STRANGE = "this device's rows are not known to bubblescope"
# How the categories of other devices begin.
_DEVICES = {
    "mtia": "Meta MTIA",
    "hpu": "Intel Gaudi",
    "glow": "Glow",
    "xpu": "an Intel GPU",
    "privateuse1": "a PyTorch extension's device",
}
# Categories of rows that no device made, or that mark device rows without being work.
_EXPLAINED = {c for c in KINDS if not c.startswith(tuple(_DEVICES))}
_EXPLAINED |= {"trace", "gpu_user_annotation", "cuda_profiler_range"}
# Top-level fields of other JSON files that profilers write: what they are, what to do.
_OTHER_JSON: tuple[tuple[set[str], str, str], ...] = (
    (
        {"nodes", "schema"},
        "a PyTorch execution trace: a graph of operators without device times",
        "record with torch.profiler and export_chrome_trace",
    ),
    (
        {"segments", "device_traces"},
        "a memory snapshot of PyTorch: allocations, not what ran when",
        "record with torch.profiler and export_chrome_trace",
    ),
    (
        {"rocprofiler-sdk-tool"},
        "the JSON of rocprofv3, which this version cannot read",
        "record with torch.profiler, which sees HIP too",
    ),
)


_AGAIN = "copy it again whole, or record it again with fewer steps"


def not_json(
    path: Path, content: bytes | bytearray, cut: str, error: Exception | None
) -> BubblescopeError:
    """The file is no whole JSON text, and no event in it is whole."""
    if cut or "truncated" in str(error):
        where = cut or f"the JSON ends in the middle, at byte {len(content):,}"
        return refusal(path, f"cut short: {where}", _AGAIN)
    detail = str(error).removeprefix("JSON is malformed: ")
    return refusal(path, f"not valid JSON: {detail}", "export or record it again")


def not_a_trace(path: Path, content: bytes | bytearray, error: Exception) -> BubblescopeError:
    """The file is JSON, but its events are not where a trace has them."""
    if "missing required field" not in str(error):
        return refusal(path, f"JSON, but not a trace: {error}", _READABLE)
    try:
        keys = list(msgspec.json.decode(content, type=dict[str, msgspec.Raw]))
    except msgspec.MsgspecError:
        keys = []  # a key that is no text
    for fields, what, advice in _OTHER_JSON:
        if fields <= set(keys):
            return refusal(path, what, advice)
    listed = f", but {', '.join(keys[:5])}" if keys else ""
    return refusal(path, f"JSON, but not a trace: it has no traceEvents{listed}", _READABLE)


def no_events(path: Path, events: int, pairs: int, cut: str) -> BubblescopeError:
    """The list of events is empty, or none of them has a duration. pairs: begin events among it."""
    if cut:
        return refusal(path, f"cut short: {cut}, before the first event with a duration", _AGAIN)
    if not events:
        return refusal(path, "a trace with 0 events", "record it again")
    if pairs:
        return refusal(
            path, f"{pairs:,} begin and end events, none with a duration: {_STRANGE}", _READABLE
        )
    noun = "entry" if events == 1 else "entries"
    return refusal(path, f"{events:,} {noun}, but no event with a duration", _READABLE)


def no_device_ops(path: Path, events: Events, calls: HostCalls, cut: str) -> BubblescopeError:
    """Events there are, but no device operation: unknown what the device did, never idle.

    cut: where the file is cut, "" where it is whole.
    """
    kind = events.columns["kind"]
    if cut:
        whole = _many(sum(events.categories.values()), "whole event")
        return refusal(path, f"cut short: {cut}, with {whole} but no device operation", _AGAIN)
    dropped = int((kind <= MEMSET).sum())
    if dropped:
        return refusal(
            path,
            f"none of its {dropped:,} device operations has a time that can be true",
            "record it again",
        )
    launches = int(calls.name.where(lambda n: is_kernel_launch(n) or is_graph_launch(n)).sum())
    ranges = events.categories.get("cuda_profiler_range", 0)
    if launches and ranges:
        return refusal(
            path,
            f"{_many(launches, 'launch')}, {ranges:,} cuda_profiler_range rows, no GPU record: "
            "CUPTI metrics were collected in place of the kernels",
            "record without profiler metrics",
        )
    if launches and calls.name.where(lambda name: "BeginCapture" in name).any():
        return refusal(
            path,
            f"{_many(launches, 'launch')} while graphs were captured, no GPU record: a captured "
            "launch runs nothing",
            "diagnose the trace of the replays, not that of the capture",
        )
    if launches:
        return refusal(
            path,
            f"{_many(launches, 'launch')}, no GPU record: the capture lost the GPU side",
            "try a warm-up step before the recorded ones, check the CUPTI permissions, and that no "
            "other profiler is attached",
        )
    strangers = {c: n for c, n in events.categories.items() if c.lower() not in _EXPLAINED}
    if strangers:
        most = sorted(strangers.items(), key=lambda item: -item[1])[:3]
        listed = ", ".join(f"{n:,} {c or 'uncategorised'}" for c, n in most)
        whose = _device(events)
        return refusal(
            path,
            f"no CUDA or HIP device operation; it has {listed} rows{whose}: {_STRANGE}",
            _READABLE,
        )
    if len(calls):
        return refusal(
            path,
            f"{_many(len(calls), 'CUDA call')}, none of them a launch, no GPU record: nothing ran "
            "on the GPU inside the capture, or its records were lost",
            "record with ProfilerActivity.CUDA, the work inside the profiled steps, after a "
            "warm-up step",
        )
    ops, frames = int((kind == OP).sum()), int((kind == PYTHON).sum())
    return refusal(
        path,
        f"CPU-only trace: {_many(ops, 'framework op')}, {_many(frames, 'Python frame')}, no CUDA "
        "call, no device operation",
        "record with ProfilerActivity.CUDA",
    )


def _device(events: Events) -> str:
    """Whose rows they are, as far as that can be told: " of Meta MTIA", or ""."""
    for category in events.categories:
        for beginning, name in _DEVICES.items():
            if category.lower().startswith(beginning):
                return f" of {name}"
    named = {str(label.args.name) for label in events.labels if label.args}
    if any("HIP API" in name for name in named):
        return " of rocprof"
    return ""


def _many(count: int, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("h") else "s")
    return f"{count:,} {noun if count == 1 else plural}"
