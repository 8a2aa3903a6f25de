from types import SimpleNamespace

import torch


def biased_grouped_topk_gpu() -> None:
    pass


def biased_grouped_topk_impl() -> None:
    pass


biased_grouped_topk = biased_grouped_topk_gpu


def capture_routed_experts_if_allowed(
    topk_config: SimpleNamespace, layer_id: int, topk_ids: torch.Tensor
) -> None:
    pass


class TopK(torch.nn.Module):
    """Token t goes to experts t % 4 and 4 + t // 2 % 4, and to the shared one."""

    def __init__(self, layer_id: int) -> None:
        super().__init__()
        self.layer_id = layer_id
        self.topk_config = SimpleNamespace(top_k=3, num_shared_topk_slots=1)

    def forward(self, tokens: int) -> None:
        t = torch.arange(tokens)
        ids = torch.stack([t % 4, 4 + t // 2 % 4, torch.full_like(t, 16)], dim=1)
        capture_routed_experts_if_allowed(self.topk_config, self.layer_id, ids)
