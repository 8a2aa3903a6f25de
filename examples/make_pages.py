"""Make the pages in examples/pages with the commands that anyone would use.

    python examples/make_pages.py [FOLDER]

Each is one HTML file that opens without a network, of SGLang on an H200: a diagnosis and a
comparison of recorded steps, and the ablation of its passes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRACES = ROOT / "traces"
RESULTS = ROOT / "benchmarks" / "results"
STEPS = ("--window", "200:210")


def commands() -> dict[str, tuple[str | Path, ...]]:
    """The arguments of bubblescope that make each page."""
    sglang = TRACES / "ling3-sglang-h200.bscope"
    without_sync = TRACES / "ling3-sglang-h200-seq-len-sync.bscope"
    return {
        "diagnose.html": ("diagnose", sglang, *STEPS),
        "compare.html": ("compare", sglang, without_sync, *STEPS),
        "ablate.html": ("view", RESULTS / "ablate-sglang-h200.json"),
    }


def main(folder: Path) -> None:
    """Make all pages, in place of those that are there, and say how large they are."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, arguments in commands().items():
        path = folder / name
        words = [str(a.relative_to(ROOT)) if isinstance(a, Path) else a for a in arguments]
        program = [sys.executable, "-m", "bubblescope", *words, "--html", str(path), "--force"]
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
        print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "examples" / "pages")
