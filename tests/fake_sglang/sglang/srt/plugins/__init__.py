from importlib.metadata import entry_points

from sglang.srt.plugins.hook_registry import HookRegistry


def load_plugins() -> None:
    for entry in entry_points(group="sglang.srt.plugins"):
        entry.load()()
    HookRegistry.apply_hooks()
