"""Timeline -> Diagnosis: bubbles, their parts and causes, blocking reads and their price."""

from bubblescope.diagnose.diagnosis import diagnose
from bubblescope.diagnose.model import Diagnosis

__all__ = ["Diagnosis", "diagnose"]
