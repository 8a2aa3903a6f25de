"""In the scheduler's process: all that a sequence leaves behind in the engine, by name."""

from __future__ import annotations

from typing import Any

CACHES = ("MLA cache", "keys of layer", "values of layer")
"""Names of arrays by position begin with these."""


def state(scheduler: Any, request: Any, lengths: Any, prompt: int, given: int) -> dict[str, Any]:
    """Copies on the device, queued on the current stream.

    Args:
        scheduler: of the engine.
        request: its row in the pools, (1,).
        lengths: tokens in the caches with speculation, (1,); None: as many as were `given` out
            after the prompt, less one.
        prompt: tokens of the prompt.
        given: tokens that were given out.

    Returns:
        "length": positions after the prompt's first given token, (1,). KDA states (layers, heads,
        values, keys) and convolution inputs where the model has them, and entries of the caches
        (tokens, width) by layer.

    Raises:
        AttributeError: the engine keeps them in another way than is known here.
    """
    import torch

    runner = scheduler.tp_worker.model_runner
    pool = runner.req_to_token_pool
    if lengths is None:
        lengths = torch.tensor([prompt + given - 1], device=request.device)
    made = {"length": lengths.reshape(-1)[:1].clone() - prompt + 1}
    if hasattr(pool, "mamba_pool"):
        slot = pool.get_mamba_indices(request.reshape(-1)[:1].long()).long()
        cache = pool.mamba_pool.mamba_cache
        made["KDA states"] = cache.temporal.index_select(1, slot).squeeze(1)
        for number, kept in enumerate(cache.conv):
            made[f"convolution inputs {number}"] = kept.index_select(1, slot).squeeze(1)
    # More than the length can be; `cut` takes off what lies beyond, which belongs to nobody.
    row = pool.req_to_token.index_select(0, request.reshape(-1)[:1].long()).reshape(-1)
    places = row[: prompt + 8 * (given + 8)].long().clamp(min=0)
    entries = getattr(runner.token_to_kv_pool, "full_kv_pool", runner.token_to_kv_pool)
    if hasattr(entries, "kv_buffer"):
        buffers = {f"{CACHES[0]} {n}": kept for n, kept in enumerate(entries.kv_buffer)}
    else:
        buffers = {f"{CACHES[1]} {n}": kept for n, kept in enumerate(entries.k_buffer)}
        buffers |= {f"{CACHES[2]} {n}": kept for n, kept in enumerate(entries.v_buffer)}
    for name, buffer in buffers.items():
        made[name] = buffer[places].reshape(len(places), -1)
    return made


def cut(made: dict[str, Any], prompt: int) -> dict[str, Any]:
    """Caches as far as the sequence goes; waits for the device."""
    tokens = int(made["length"]) + prompt - 1
    return {k: v[:tokens] if k.startswith(CACHES) else v for k, v in made.items()}
