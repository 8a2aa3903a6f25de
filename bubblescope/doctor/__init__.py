"""What can be recorded on this machine, and why not: `bubblescope doctor`."""

from bubblescope.doctor.examination import examine
from bubblescope.doctor.machine import Machine
from bubblescope.doctor.model import Capture, Check, Examination, State

__all__ = ["Capture", "Check", "Examination", "Machine", "State", "examine"]
