"""What to say of a JSON file that holds nothing to diagnose."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bubblescope.errors import BubblescopeError
from bubblescope.ingest.kineto_events import KINDS, MEMSET, OP, PYTHON, Events
from bubblescope.ingest.source import refusal
from bubblescope.timeline import HostCalls
from bubblescope.timeline.api import is_graph_launch, is_kernel_launch

# Categories of rows that no device made, or that mark device rows without being work.
_EXPLAINED = {*KINDS, "trace", "gpu_user_annotation", "cuda_profiler_range"}
_READABLE = "what can be diagnosed is a PyTorch profiler trace of a CUDA or HIP device"


def not_json(path: Path, content: bytes | bytearray, error: Exception) -> BubblescopeError:
    """The file is no whole JSON text."""
    if "truncated" in str(error):
        return refusal(
            path,
            f"cut short: the JSON ends in the middle, at byte {len(content):,}",
            "copy it again whole, or record it again with fewer steps",
        )
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
    if "nodes" in keys and "schema" in keys:
        return refusal(
            path,
            "a PyTorch execution trace: a graph of operators without device times",
            "record with torch.profiler and export_chrome_trace",
        )
    listed = f", but {', '.join(keys[:5])}" if keys else ""
    return refusal(path, f"JSON, but not a trace: it has no traceEvents{listed}", _READABLE)


def no_events(path: Path, events: int) -> BubblescopeError:
    """The list of events is empty, or none of them has a duration."""
    if not events:
        return refusal(path, "a trace with 0 events", "record it again")
    noun = "entry" if events == 1 else "entries"
    return refusal(path, f"{events:,} {noun}, but no event with a duration", _READABLE)


def no_device_ops(path: Path, events: Events, calls: HostCalls) -> BubblescopeError:
    """Events there are, but no device operation: unknown what the device did, never idle."""
    kind = events.columns["kind"]
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
        return refusal(path, f"no CUDA or HIP device operation; it has {listed} rows", _READABLE)
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


def _many(count: int, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("h") else "s")
    return f"{count:,} {noun if count == 1 else plural}"
