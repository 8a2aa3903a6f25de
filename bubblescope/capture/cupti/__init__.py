"""CUPTI through cupti-python: what a process launches on CUDA, recorded as tables."""

from bubblescope.capture.cupti.backend import CuptiBackend

__all__ = ["CuptiBackend"]
