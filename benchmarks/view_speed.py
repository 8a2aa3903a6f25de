"""How large the page of a million events is, how soon it can be used, how fast it redraws.

    python benchmarks/view_speed.py [--events 1000000] [--kind eager|graph] [--out FILE.json]

Opens the page in headless Chromium (without a GPU, so that drawing is on the CPU) and measures in
it. An event is a device operation, a host call or a range. A redraw is the whole frame: the
scripts, and the pixels themselves, which are read back so that none is still to be drawn.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from diagnose_scale import eager, graph
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from bubblescope.diagnose import diagnose
from bubblescope.timeline import Timeline
from bubblescope.view import Shown, diagnosis_page

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,800",
)
# The chart and the tracks come after the first picture; then nothing is left to do.
SETTLED = """
const done = arguments[0];
const look = async () => {
  const { charts, timeline } = bubblescope;
  if (!charts || !timeline.strips[0].tracks) return void setTimeout(look, 5);
  await charts;
  requestAnimationFrame(() => setTimeout(() => done(performance.now())));
};
look();
"""
# From the whole window down to some microseconds and back, moving a little at each depth.
REDRAWS = """
const done = arguments[0];
const timeline = bubblescope.timeline;
const times = [];
const flush = () => timeline.context.getImageData(0, 0, 1, 1);
const redraw = (change) => {
  const began = performance.now();
  change();
  timeline.draw();
  flush();
  times.push(performance.now() - began);
};
(async () => {
  timeline.fit(); timeline.draw(); flush();
  for (let depth = 0; depth < 24; depth++) {
    for (let n = 0; n < 4; n++) {
      redraw(() => timeline.pan(60));
      await new Promise(requestAnimationFrame);
    }
    redraw(() => timeline.zoom(1.7, 300)); await new Promise(requestAnimationFrame);
  }
  for (let depth = 0; depth < 24; depth++) {
    redraw(() => timeline.zoom(1 / 1.7, 300)); await new Promise(requestAnimationFrame);
  }
  done(times);
})();
"""


def of_events(kind: str, events: int) -> Timeline:
    """About that many operations, calls and ranges together."""
    operations = events * 100 // 301 if kind == "eager" else events * 1000 // 1003
    return {"eager": eager, "graph": graph}[kind](max(operations, 1_000))


def browser() -> webdriver.Chrome:
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    for flag in (*FLAGS, f"--user-data-dir={tempfile.mkdtemp(prefix='bubblescope-')}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def measure(path: Path) -> dict[str, object]:
    """In the page: ms from the start of loading until it can be used and until all is drawn."""
    ready: list[float] = []
    settled: list[float] = []
    for _ in range(5):
        driver = browser()
        try:
            driver.set_script_timeout(120)
            driver.get(path.as_uri())
            script = "return Number(document.documentElement.dataset.ready || 0)"
            while not (found := driver.execute_script(script)):
                time.sleep(0.02)
            ready.append(found)
            settled.append(round(driver.execute_async_script(SETTLED)))
            if len(ready) == 5:
                times = driver.execute_async_script(REDRAWS)
                version = driver.capabilities["browserVersion"]
        finally:
            driver.quit()
    ordered = sorted(times)
    return {
        "chromium": version,
        "ready_ms": round(statistics.median(ready)),
        "ready_ms_each": ready,
        "settled_ms": statistics.median(settled),
        "settled_ms_each": settled,
        "redraws": len(times),
        "redraw_ms_median": round(statistics.median(times), 1),
        "redraw_ms_p95": round(ordered[int(0.95 * len(ordered))], 1),
        "redraw_ms_most": round(ordered[-1], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--kind", choices=["eager", "graph"])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results = []
    for kind in [arguments.kind] if arguments.kind else ["eager", "graph"]:
        timeline = of_events(kind, arguments.events)
        diagnosis = diagnose(timeline)
        began = time.perf_counter()
        page = diagnosis_page(Shown(timeline, diagnosis))
        seconds = time.perf_counter() - began
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "page.html"
            path.write_bytes(page)
            events = len(timeline.device_ops) + len(timeline.host_calls) + len(timeline.ranges)
            results.append(
                {
                    "kind": kind,
                    "events": events,
                    "operations": len(timeline.device_ops),
                    "bubbles": sum(len(d.bubbles.start) for d in diagnosis.devices),
                    "page_bytes": len(page),
                    "write_s": round(seconds, 2),
                    **measure(path),
                }
            )
        print(json.dumps(results[-1]))
    if arguments.out:
        load = round(os.getloadavg()[0], 1)  # of it, this program and its browser are about 1
        machine = {"cpus": os.cpu_count(), "machine": platform.machine(), "load_average": load}
        arguments.out.write_text(
            json.dumps({"machine": machine, "pages": results}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
