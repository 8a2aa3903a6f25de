import os


class Flag:
    def __init__(self, name: str) -> None:
        self._name = name

    def get(self) -> bool:
        return os.environ.get(self._name, "0") == "1"


class envs:
    SGLANG_ENABLE_METADATA_GLUE_GRAPH = Flag("SGLANG_ENABLE_METADATA_GLUE_GRAPH")
    SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH = Flag("SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH")
    SGLANG_OPT_FUSED_KDA_VERIFY = Flag("SGLANG_OPT_FUSED_KDA_VERIFY")
