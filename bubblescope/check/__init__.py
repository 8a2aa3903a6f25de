"""Budgets on a diagnosis, for tests and CI: how much a step may read back, idle and take."""

from bubblescope.check.budget import Budget
from bubblescope.check.evaluate import evaluate
from bubblescope.check.model import Baseline, CheckLine

__all__ = ["Baseline", "Budget", "CheckLine", "evaluate"]
