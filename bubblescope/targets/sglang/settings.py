"""How the engine is started: a user's model and flags, or the slice of Ling-3.0-flash."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bubblescope.errors import BubblescopeError

SLICE = Path(__file__).parent / "ling_slice"
"""A model folder of one file: the shapes of one of four tensor-parallel ranks, 63 GB in bf16."""
SPECULATION = {
    "speculative_algorithm": "NEXTN",
    "speculative_num_steps": 5,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 6,
}
_SLICE_ARGUMENTS: dict[str, Any] = {
    "load_format": "dummy",
    "skip_tokenizer_init": True,
    "attention_backend": "triton",
    "sampling_backend": "pytorch",
    "context_length": 16_384,
    "mem_fraction_static": 0.85,
    "dtype": "bfloat16",
    **SPECULATION,
}
"""As the slice runs on one H200: dummy weights, NEXTN with six tokens to verify."""

_COUNTS = ("tp_size", "speculative_num_steps", "speculative_num_draft_tokens")
"""Arguments that are counted with here, before SGLang has looked at them."""
_WEIGHTS = {
    "": "of the model folder",
    "dummy": "dummy, SGLang's: nearly all tokens choose the same experts",
    "spread": "dummy, scaled so that routing spreads over the experts",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What an engine is started with.

    arguments: of sglang.Engine. accept_length: mean tokens a step that acceptance is simulated
    with, 0 where the drafts must be right. weights: "dummy" as SGLang fills them, "spread" so that
    routing spreads over the experts and tokens differ (`spread`), "" of the model folder.
    verified: tokens that a step verifies, as the engine says; 0 where it was not asked yet.
    """

    arguments: dict[str, Any]
    accept_length: float
    weights: str = ""
    verified: int = 0

    @classmethod
    def of(
        cls,
        model: str | None,
        tp: int | None,
        engine: tuple[str, ...],
        accept_length: float | None,
        weights: str | None = None,
    ) -> Settings:
        """From what the command line says.

        Args:
            model: a model path; the slice with dummy weights where None.
            tp: tensor-parallel ranks.
            engine: more arguments of sglang.Engine, "name=value"; a value is JSON or a string.
            accept_length: simulated acceptance; where None, 3.25 for dummy weights, else none.
            weights: "spread" (where None) or "dummy", for a model loaded with dummy weights.

        Raises:
            BubblescopeError: an argument that is no name=value; weights for a model with its own;
                processes that are no tensor-parallel ranks; an acceptance that cannot be.
        """
        arguments: dict[str, Any] = {
            "model_path": model or str(SLICE),
            "disable_radix_cache": True,
            "max_running_requests": 1,
        }
        if model is None:
            arguments |= _SLICE_ARGUMENTS
        if tp is not None:
            arguments["tp_size"] = tp
        for text in engine:
            name, equals, value = text.partition("=")
            if not equals or not name.isidentifier():
                raise BubblescopeError(
                    f"--engine {text!r}: write NAME=VALUE, an argument of sglang.Engine"
                )
            arguments[name] = _value(value)
        if arguments.get("speculative_algorithm") is None:
            for name in SPECULATION:
                arguments.pop(name, None)
        elif "speculative_draft_model_path" not in arguments and model is None:
            arguments["speculative_draft_model_path"] = arguments["model_path"]
        for name in _COUNTS:
            if not isinstance(arguments.get(name, 1), int | None):
                raise BubblescopeError(f"--engine {name}={arguments[name]}: write a whole number")
        for name in ("pp_size", "dp_size", "nnodes"):
            if arguments.get(name) not in (None, 1):
                raise BubblescopeError(
                    f"--engine {name}={arguments[name]}: only tensor-parallel ranks of one machine "
                    "are followed (--tp); record a server that has others with --attach URL"
                )
        dummy = arguments.get("load_format") == "dummy"
        accept_length = _accepted(accept_length, arguments, dummy)
        if weights and not dummy:
            raise BubblescopeError(
                f"--weights {weights}: the model has weights of its own; to time it without them, "
                "add --engine load_format=dummy"
            )
        return cls(arguments, accept_length, (weights or "spread") if dummy else "")

    @property
    def most_tokens(self) -> int:
        """Tokens that a step can give at most."""
        return self.verified or int(self.arguments.get("speculative_num_draft_tokens") or 1)

    def without_speculation(self, memory: float) -> Settings:
        """The same model, one token a step, with that share of the device's memory."""
        kept = {
            name: value
            for name, value in self.arguments.items()
            if not name.startswith("speculative_") and "linear_replayssm" not in name
        }
        if "mem_fraction_static" in kept:
            kept["mem_fraction_static"] = memory
        return Settings(kept, 0.0, self.weights)

    def environment(self) -> dict[str, str]:
        """Of the engine's processes, besides what they inherit."""
        said = {"BUBBLESCOPE_SGLANG_WEIGHTS": self.weights, "SGLANG_SIMULATE_ACC_LEN": "-1"}
        if self.accept_length:
            said["HF_HUB_OFFLINE"] = "1"
            said["SGLANG_SIMULATE_ACC_LEN"] = f"{self.accept_length:g}"
            if self.weights == "spread":  # else every token that is given out is number 100
                said["SGLANG_SIMULATE_ACC_TOKEN_MODE"] = "real-draft-token"
        return said

    def tokens(self, steps: int) -> int:
        """New tokens to ask for so that the engine makes so many decode steps."""
        mean = self.accept_length or self.most_tokens
        # A random walk of the simulated lengths stays within this by far.
        return int(steps * mean * 1.1) + 10 * self.most_tokens

    def about(self) -> dict[str, str]:
        """What a report must say of it."""
        a = self.arguments
        own = Path(str(a["model_path"])) != SLICE
        said = {
            "model": str(a["model_path"]) if own else "Ling-3.0-flash, 42 layers, SGLang",
            "weights": _WEIGHTS[self.weights],
            "shard": f"{a.get('tp_size', 1)} tensor-parallel ranks"
            if own
            else "the slice of one of 4 tensor-parallel ranks, without all-reduce",
            "acceptance": f"simulated acceptance, {self.accept_length:g} tokens a step in the mean"
            if self.accept_length
            else "the model's own",
        }
        shown = {k: v for k, v in a.items() if k not in ("model_path", "load_format", "tp_size")}
        said["engine"] = " ".join(f"{k}={json.dumps(v)}" for k, v in sorted(shown.items()))
        return said


def _accepted(asked: float | None, arguments: dict[str, Any], dummy: bool) -> float:
    """Tokens a step that acceptance is simulated with, 0 for none; as `Settings.of` takes it."""
    speculates = "speculative_algorithm" in arguments
    most = int(arguments.get("speculative_num_draft_tokens") or 0)
    if asked is None:
        usual = min(3.25, most) if most else 3.25
        return usual if dummy and speculates else 0.0
    if not asked:
        return 0.0
    if not speculates:
        raise BubblescopeError(
            f"--accept-length {asked:g}: without speculation a step gives one token"
        )
    if asked < 1 or (most and asked > most):
        raise BubblescopeError(
            f"--accept-length {asked:g}: a step gives 1 to {most or 'all'} of the tokens that it "
            "verifies"
        )
    return asked


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
