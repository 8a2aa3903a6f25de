"""Fixes that bubblescope recommends: one module a pass, each switched on and off alone."""

from optimizations.registry import passes_for

__all__ = ["passes_for"]
