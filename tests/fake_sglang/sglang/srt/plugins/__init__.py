import os
from importlib.metadata import entry_points

from sglang.srt.plugins.hook_registry import HookRegistry


def load_plugins() -> None:
    if os.environ.get("SGLANG_FAKE_PLUGINS") == "none":
        return
    for entry in entry_points(group="sglang.srt.plugins"):
        entry.load()()
    HookRegistry.apply_hooks()
