from dataclasses import dataclass
from typing import Any


@dataclass
class SpecRuntimeState:
    speculative_num_steps: int
    speculative_num_draft_tokens: int
    draft_attn_backend: Any
    cuda_graph_runner: Any
    target_attn_backend: Any
    target_graph_runner: Any
    draft_extend_attn_backend: Any
    cuda_graph_runner_for_draft_extend: Any
