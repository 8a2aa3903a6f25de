"""What a trace is: the Timeline and its tables, and the .bscope file."""

from bubblescope.timeline.coded import Coded
from bubblescope.timeline.meta import Device, Meta, ThreadName
from bubblescope.timeline.tables import (
    DeviceOps,
    Frames,
    Health,
    HostCalls,
    Ranges,
    Steps,
    Table,
)
from bubblescope.timeline.timeline import Timeline, in_order

__all__ = [
    "Coded",
    "Device",
    "DeviceOps",
    "Frames",
    "Health",
    "HostCalls",
    "Meta",
    "Ranges",
    "Steps",
    "Table",
    "ThreadName",
    "Timeline",
    "in_order",
]
