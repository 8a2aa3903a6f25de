"""Inside a traced program: record from now on, through CUPTI where it can be had."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from bubblescope.capture.recorder import Recorder


def begin(plan: dict[str, Any]) -> None:
    """Called by the injected sitecustomize, with what `command` sends.

    Where CUPTI is missing, too old or held, torch.profiler takes its place.
    """
    with suppress(Exception):  # the program must run as it would have
        why = plan["missing"] or Recorder(plan).begin()
        if why:
            from bubblescope.capture.fallback import Fallback

            Fallback(plan, why).wait()
