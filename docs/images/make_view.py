"""Draw the pictures of pages in docs/view.md: shipped recordings in headless Chromium.

    python docs/images/make_view.py

Needs chromium and chromium-driver, and the dev extra.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from examples.make_pages import commands
from tests.browser import HEIGHT, WIDTH, Page, start

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FINER = 1.4  # pixels of a picture for each of the page
# The longest bubble of step 203's verify stage, with the read that it is charged to.
BUBBLE = """
const { timeline, recordings: [recording] } = bubblescope;
const { bubble, steps } = recording;
const [from, to] = [steps.start_ns[3] + 1e6, steps.end_ns[3]];
const within = (start) => start >= from && start < to;
const inStep = [...bubble.start.keys()].filter((n) => within(bubble.start[n]));
inStep.sort((a, b) => bubble.length[b] - bubble.length[a]);
timeline.select(timeline.strips[0], "bubble", inStep[0]);
timeline.view(steps.start_ns[3] - 0.9e6, steps.start_ns[3] + 3.4e6);
"""
PROFILER = (
    "compare",
    "traces/ling3-h200-seqlen-sync.bscope",
    "traces/ling3-h200-no-sync.bscope",
)
"""The pair that torch.profiler recorded."""
NODE = ("diagnose", "traces/ling3-sglang-h200-node.bscope", "--window", "200:210")


def made(arguments: tuple[str | Path, ...], folder: Path) -> str:
    """The address of the page that a command makes."""
    path = folder / f"{len(list(folder.iterdir()))}.html"
    words = [str(a.relative_to(ROOT)) if isinstance(a, Path) else a for a in arguments]
    program = [sys.executable, "-m", "bubblescope", *words, "--html", str(path)]
    subprocess.run(program, check=True, capture_output=True, cwd=ROOT)
    return path.as_uri()


def draw(page: Page, name: str, *, dark: bool = False) -> None:
    """Save what is shown, at the size of a small screen."""
    if dark:
        page.click("#theme")
    page.frame()
    page.driver.save_screenshot(str(HERE / f"{name}.png"))


def main() -> None:
    """Write the pictures beside this file."""
    pages = commands()
    with tempfile.TemporaryDirectory() as profile, tempfile.TemporaryDirectory() as folder:
        page = start(Path(profile))
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": FINER, "mobile": False}
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        try:
            page.open(made(pages["diagnose.html"], Path(folder)))
            page.run(BUBBLE)
            draw(page, "view")
            page.open(made(NODE, Path(folder)))
            page.click(".finding")
            draw(page, "view-dark", dark=True)
            page.open(made(pages["compare.html"], Path(folder)))
            draw(page, "view-compare")
            page.open(made(PROFILER, Path(folder)))
            draw(page, "view-profiler")
            page.open(made(pages["ablate.html"], Path(folder)))
            draw(page, "view-ablate")
        finally:
            page.driver.quit()


if __name__ == "__main__":
    main()
