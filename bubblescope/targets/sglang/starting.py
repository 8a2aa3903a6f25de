"""Switches that are decided before the engine starts: what it is started with, and where not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bubblescope.errors import BubblescopeError
from bubblescope.targets.sglang.switches import SWITCHES

RING = 16
"""Positions of SGLang's ring of raw inputs, where nothing else is said."""
_LENGTH = "linear_replayssm_cache_len"
SHIPPED_ENVIRONMENT = {
    "SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH": "0",
    "SGLANG_OPT_FUSED_KDA_VERIFY": "0",
    "SGLANG_ENABLE_METADATA_GLUE_GRAPH": "0",
}
"""What an engine starts with whose switches passes decide, whatever is set where this runs."""
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")


def arguments(given: Mapping[str, Any], on: Iterable[str]) -> dict[str, Any]:
    """Those of sglang.Engine, with what switches add to them.

    Args:
        given: without them.
        on: switches that are to be on; of those that are decided later nothing comes.
    """
    made = dict(given)
    for name in sorted(on):
        made |= SWITCHES[name].arguments
    if made.get("enable_linear_replayssm_spec") and _LENGTH not in made:
        drafts = _drafts(given)
        made[_LENGTH] = max(RING, 1 << (2 * drafts - 1).bit_length()) if drafts else RING
    return made


def inherited(environment: Mapping[str, str], set_here: Iterable[str]) -> str:
    """SGLang's variables that an engine gets from where this runs, but for secrets."""
    found = (
        f"{name}={value}"
        for name, value in sorted(environment.items())
        if name.startswith("SGLANG_") and name not in set_here
        if not any(word in name for word in _SECRET)
    )
    return " ".join(found)


def refuse(given: Mapping[str, Any]) -> None:
    """Of "linear-state replay": where SGLang 0.5.23 does not take it, as far as arguments tell.

    Whether the model has such states is known when the engine runs.

    Raises:
        BubblescopeError: it cannot be switched on for an engine with these arguments.
    """
    why = _why_not(given)
    if why:
        raise BubblescopeError(f"pass replay-ssm: {why}")


def _why_not(given: Mapping[str, Any]) -> str:
    if given.get("speculative_algorithm") is None:
        return "needs speculation, as in --engine speculative_algorithm=NEXTN"
    if str(given["speculative_algorithm"]).upper() == "NGRAM":
        return "needs drafts in a chain; NGRAM makes a tree"  # and 0.5.23 crashes: 37061
    if given.get("speculative_eagle_topk") not in (None, 1):
        return "needs drafts in a chain: --engine speculative_eagle_topk=1"
    # Other kernels that verify do not keep the inputs.
    for name in ("linear_attn_decode_backend", "linear_attn_verify_backend"):
        backend = given.get(name) or given.get("linear_attn_backend")
        if backend not in (None, "triton"):
            return f"needs the linear attention of triton, not {backend}"
    if given.get("enable_linear_replayssm"):
        return "cannot go with enable_linear_replayssm, which keeps its ring in another way"
    length, drafts = given.get(_LENGTH), _drafts(given)
    if length is None:
        return ""
    if not isinstance(length, int) or length < 1 or length & (length - 1):
        return f"needs a power of two for {_LENGTH}, not {length}"
    if length < 2 * drafts:
        return f"needs {_LENGTH} to be at least twice the {drafts} tokens that a step verifies"
    return ""


def _drafts(given: Mapping[str, Any]) -> int:
    """Tokens that a step verifies; 0 where SGLang is left to choose."""
    said = given.get("speculative_num_draft_tokens")
    if said is None and given.get("speculative_num_steps") is not None:
        said = int(given["speculative_num_steps"]) + 1  # of a chain
    return int(said or 0)
