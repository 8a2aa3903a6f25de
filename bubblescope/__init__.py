"""bubblescope: where an LLM decode step goes, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bubblescope.tracing.session import trace

__all__ = ["trace"]


def __getattr__(name: str) -> Any:
    # Imported when used: a program that only reads a version needs none of it.
    if name == "trace":
        from bubblescope.tracing.session import trace

        return trace
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
