"""Two diagnoses side by side: what appeared, what vanished, what changed beyond the noise."""

from bubblescope.compare.comparison import compare
from bubblescope.compare.model import Comparison
from bubblescope.compare.run import Run

__all__ = ["Comparison", "Run", "compare"]
