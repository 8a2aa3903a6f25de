"""Which experts tokens go to, counted in the running engine while nothing is timed.

Graphs that were captured cannot be asked, and what SGLang has for it
(`enable_return_routed_experts`, the expert distribution recorder) puts more kernels into them. So
tokens that were generated are prefilled once more, without a graph, and what the routers choose is
noted.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

_TOPK = "sglang.srt.layers.moe.topk"
_NOTED = "capture_routed_experts_if_allowed"
"""What SGLang calls with each layer's choice, whichever kernel made it."""
TOKENS = 256
"""How many tokens are prefilled at most."""


class Routing:
    """In a scheduler's process: notes the choices of one prefill, between `begin` and `end`.

    Nothing of it is there before and after: neither captured graphs nor timed steps see it.
    """

    def __init__(self, scheduler: Any, folder: Path, rank: int) -> None:
        self._scheduler = scheduler
        self._path = folder / f"routing-{rank}.json"
        self._chosen: dict[int, Any] = {}
        self._problem = ""
        self._restore: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Note choices from here on, and prefill without a graph."""
        self._chosen = {}
        self._problem = ""
        try:
            self._put_in()
        except Exception as error:  # whatever it is, the engine must go on
            self._problem = f"{type(error).__name__}: {error}"

    def end(self, group: int) -> None:
        """Put everything back, and write the count.

        Args:
            group: tokens that a step verifies.
        """
        while self._restore:
            self._restore.pop()()
        said: dict[str, Any] = {"problem": self._problem}
        if not self._problem:
            try:
                said |= self._count(group)
            except Exception as error:  # whatever it is, the engine must go on
                said["problem"] = f"{type(error).__name__}: {error}"
        self._chosen = {}
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps(said), encoding="utf-8")
        draft.replace(self._path)

    def _put_in(self) -> None:
        module, runner = import_module(_TOPK), self._scheduler.tp_worker.model_runner
        original, graph = getattr(module, _NOTED), runner.prefill_cuda_graph_runner

        def noted(config: Any, layer: int, ids: Any) -> Any:
            # The draft model comes after the model that it drafts for.
            if layer not in self._chosen:
                width = ids.shape[1]
                if width == config.top_k:
                    width -= config.num_shared_topk_slots
                self._chosen[layer] = ids[:, :width].clone()
            return original(config, layer, ids)

        self._restore = [
            lambda: setattr(module, _NOTED, original),
            lambda: setattr(runner, "prefill_cuda_graph_runner", graph),
        ]
        setattr(module, _NOTED, noted)
        runner.prefill_cuda_graph_runner = None

    def _count(self, group: int) -> dict[str, Any]:
        runner = self._scheduler.tp_worker.model_runner
        layers = {m.layer_id for m in runner.model.modules() if type(m).__name__ == "TopK"}
        ids = [chosen.cpu().numpy() for layer, chosen in self._chosen.items() if layer in layers]
        said = {"layers": len(ids), "of": len(layers), "group": group, "groups": 0}
        counts = [distinct(chosen, group) for chosen in ids]
        if not counts or not len(counts[0]):
            return said
        return said | {
            "groups": len(counts[0]),
            "distinct": float(np.mean([c.mean() for c in counts])),
            "most": int(max(c.max() for c in counts)),
            "chosen": ids[0].shape[1],
            "experts": _experts(runner),
        }


def distinct(ids: np.ndarray[Any, Any], group: int) -> np.ndarray[Any, Any]:
    """Distinct experts of each `group` tokens in a row.

    Args:
        ids: (tokens, k), the experts of each token; negative ones are none.
        group: how many; tokens at the beginning that fill no group are left out.

    Returns:
        One count a group.
    """
    groups = len(ids) // group
    rows = np.sort(ids[len(ids) - groups * group :].reshape(groups, group * ids.shape[1]), axis=1)
    new = np.ones(rows.shape, bool)
    new[:, 1:] = rows[:, 1:] != rows[:, :-1]
    counts: np.ndarray[Any, Any] = (new & (rows >= 0)).sum(axis=1)
    return counts


def describe(said: dict[str, Any]) -> str:
    """What a report says of a count."""
    if said["problem"]:
        return f"not known: {said['problem']}"
    if not said["of"]:
        return "the model has no router"
    if not said["groups"]:
        return (
            f"not known: {said['layers']} of {said['of']} routers were seen to choose, and for "
            f"fewer than {said['group']} tokens"
        )
    of = f" of {said['experts']:,}" if said["experts"] else ""
    if said["group"] == 1:
        return f"{said['chosen']}{of} experts a layer and token"
    return (
        f"{said['distinct']:.1f}{of} experts a layer for {said['group']} tokens in a row (at most "
        f"{said['most']}; each chooses {said['chosen']}), mean of {said['layers']} layers and "
        f"{said['groups']} groups of what was generated; rejected drafts are not in it"
    )


def _experts(runner: Any) -> int:
    config = getattr(runner.model_config, "hf_text_config", None)
    for name in ("num_experts", "n_routed_experts", "num_local_experts"):
        found = getattr(config, name, None)
        if found:
            return int(found)
    return 0
