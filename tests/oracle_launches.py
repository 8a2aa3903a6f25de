"""Launch statistics a second time, in plain loops over the oracle's rows."""

from __future__ import annotations

from dataclasses import dataclass

from tests.oracle import DeviceTruth, Oracle
from tests.oracle_records import Row, is_graph_launch, is_launch


@dataclass(frozen=True)
class Launched:
    """One call that launched something on a device. times relative to the host's clock."""

    call: Row
    first: Row
    length: int
    wait: int
    queued: int
    dry: bool


def launched(oracle: Oracle, device: DeviceTruth) -> list[Launched]:
    """Kernel and graph launches, by the first operation of each that ran here."""
    found = []
    seen = set()
    for op in device.ops:
        call = op.launch
        if call is None or call.row in seen:
            continue
        seen.add(call.row)
        inside = device.start <= op.start < device.end
        if inside and is_launch(call):
            start = op.start + oracle.shift
            found.append(
                Launched(
                    call=call,
                    first=op,
                    length=call.end - call.start,
                    wait=max(0, start - call.start),
                    queued=max(0, start - call.end),
                    dry=ahead(oracle, device, call.start) == 0,
                )
            )
    return found


def ahead(oracle: Oracle, device: DeviceTruth, time: int) -> int:
    """How long the device will work on with what was launched before `time`."""
    ends = [o.end + oracle.shift for o in device.ops if o.launch and o.launch.start < time]
    return max(0, max(ends, default=time) - time)


def depth(oracle: Oracle, device: DeviceTruth, time: int) -> int:
    """How many operations that were launched before `time` had not ended then."""
    return sum(
        o.launch is not None and o.launch.start < time < o.end + oracle.shift for o in device.ops
    )


def moments(oracle: Oracle, device: DeviceTruth) -> list[int]:
    """When the host launched anything at all here, each time once."""
    seen, found = set(), set()
    for op in device.ops:
        if op.launch is not None and op.launch.row not in seen:
            seen.add(op.launch.row)
            if device.start <= op.start < device.end:
                found.add(op.launch.start)
    return sorted(found)


def kind(call: Row) -> str:
    """As the statistics call it."""
    return "graph" if is_graph_launch(call) else "kernel"
