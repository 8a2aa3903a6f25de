"""Loaded by every Python below `bubblescope trace`: records from its first CUDA library on.

Nothing but os and sys is touched before a module that can use CUDA is imported: most Pythons of a
program are helpers. A sitecustomize that the program has itself still runs. Pythons that are too
old to record load this too, so it is written for 3.6.
"""

# ruff: noqa: PTH100, PTH118, PTH120, PTH123
# Importing pathlib would take longer than all that is done here.
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_CUDA_MODULES = frozenset(
    ("torch", "cupy", "jax", "jaxlib", "numba", "triton", "tensorflow", "cuda", "pycuda", "warp")
)


class _Watch:
    """A finder that finds nothing itself: it only sees which modules are asked for."""

    def __init__(self, plan: str) -> None:
        self.plan = plan

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "ModuleSpec | None":
        """Begin to record when the first module that can use CUDA is asked for."""
        if name not in _CUDA_MODULES or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        known = sys.meta_path[0]
        _begin(self.plan)
        first = sys.meta_path[0]
        # One that came just now waits for a module, which may be this very one.
        return None if first is known else first.find_spec(name, path, target)


def _begin(text: str) -> None:
    try:
        import json

        plan = json.loads(text)
        problem = _problem(plan["root"])
        if problem:
            path = os.path.join(plan["folder"], f"{os.getpid()}.json")
            with open(path, "w", encoding="utf-8") as out:
                json.dump({"process": os.getpid(), "kind": "problem", "text": problem}, out)
            return
        from bubblescope.capture.child import begin

        begin(plan)
    except Exception:  # the import that this comes before must go on
        return


def _problem(root: str) -> str:
    """Why this Python cannot record; "" where it can."""
    if sys.version_info < (3, 11):  # noqa: UP036
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return f"{sys.executable} is Python {version}; recording needs 3.11 or later"
    known = list(sys.path)
    try:
        try:
            import bubblescope
        except ModuleNotFoundError:
            sys.path.append(root)
        import bubblescope.capture.child  # noqa: F401
    except Exception as error:
        sys.path[:] = known
        return f"{sys.executable} cannot record ({error}); install 'bubblescope[gpu]' for it"
    return ""


def _run_own() -> None:
    """Run the sitecustomize that would have run without this one."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    others = [p for p in sys.path if os.path.abspath(p or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is None or spec.loader is None:
        return
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


_plan = os.environ.get("BUBBLESCOPE_CHILD")
if _plan:
    sys.meta_path.insert(0, _Watch(_plan))
    _run_own()
