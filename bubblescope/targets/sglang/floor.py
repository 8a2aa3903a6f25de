"""The bytes that one decode step of the engine must read, as the embedded loop counts them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bubblescope.errors import BubblescopeError
from bubblescope.targets.sglang.settings import Settings


def step_bytes(settings: Settings, experts: float) -> int | None:
    """Of one tensor-parallel rank, in bf16; see `targets.ling.floor.step_bytes`.

    Args:
        settings: what the engine was started with.
        experts: distinct ones a layer of a verify, in the mean.

    Returns:
        None where the model's folder is not of Ling-3.0-flash's architecture.
    """
    from bubblescope.targets.ling import config_file
    from bubblescope.targets.ling.floor import step_bytes_of

    try:
        whole = config_file.read(Path(str(settings.arguments["model_path"])))
        rank = whole.of_rank(int(settings.arguments.get("tp_size") or 1))
    except BubblescopeError:
        return None
    return step_bytes_of(replace(rank, drafts=settings.most_tokens - 1), experts)
