"""Pages in a real browser: Debian's Chromium, without a screen, driven by its own driver."""

from __future__ import annotations

import functools
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("selenium", reason="selenium is not installed")

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

WIDTH, HEIGHT = 1280, 800
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="no Chromium here: apt-get install -y chromium chromium-driver",
)
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


class Page:
    """A page that is open, and what a reader does with it."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, address: str) -> Page:
        """Load it and wait until it is whole."""
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(address)
        self.until(lambda: self.run("return Boolean(globalThis.bubblescope?.charts)"))
        self.wait_for("await bubblescope.charts")
        return self

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait_for(self, script: str) -> Any:
        """Run an asynchronous script to its end."""
        wrapped = f"const done = arguments[0]; (async () => {{ {script} }})().then(done)"
        return self.driver.execute_async_script(wrapped)

    def timeline(self, expression: str, *arguments: Any) -> Any:
        """An expression of `timeline`, `recording` (the first) and `a`, `b`: the arguments."""
        return self.run(
            f"""
            const {{ timeline, recordings: [recording] }} = bubblescope;
            const [a, b] = arguments;
            return {expression};
            """,
            *arguments,
        )

    def frame(self) -> None:
        """Wait until what was asked for is drawn."""
        self.wait_for("await new Promise((go) => requestAnimationFrame(() => setTimeout(go)))")

    def until(self, true: Callable[[], Any], seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end, self.driver.get_log("browser")
            time.sleep(0.02)

    def press(self, keys: str) -> None:
        ActionChains(self.driver).send_keys(keys).perform()
        self.frame()

    def press_with(self, modifier: str, key: str) -> None:
        chain = ActionChains(self.driver).key_down(modifier).send_keys(key).key_up(modifier)
        chain.perform()
        self.frame()

    def click(self, selector: str) -> None:
        self.driver.find_element(By.CSS_SELECTOR, selector).click()
        self.frame()

    def choose(self, label: str, text: str) -> None:
        """Choose an option of the select that is so labelled."""
        found = self.driver.find_element(By.CSS_SELECTOR, f'select[aria-label="{label}"]')
        next(o for o in found.find_elements(By.TAG_NAME, "option") if o.text == text).click()
        self.frame()

    def text(self, selector: str) -> str:
        """What a reader sees there, on one line."""
        return " ".join(self.driver.find_element(By.CSS_SELECTOR, selector).text.split())

    def texts(self, selector: str) -> list[str]:
        found = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return [" ".join(e.text.split()) for e in found]

    def view(self) -> tuple[float, float]:
        """From when to when the timeline shows, ns."""
        return tuple(self.run("const s = bubblescope.timeline.scale; return [s.from, s.to]"))

    def selected(self) -> tuple[str, int] | None:
        found = self.run(
            "const s = bubblescope.timeline.selected; return s ? [s.table, s.row] : null"
        )
        return None if found is None else (found[0], found[1])

    def place(self, table: str, row: int, strip: int = 0) -> tuple[float, float]:
        """The middle of an interval on the canvas, pixels."""
        return tuple(
            self.run(
                """
                const [table, row, n] = arguments;
                const { timeline } = bubblescope;
                const strip = timeline.strips[n];
                const { y, height } = timeline.place(strip, table, row);
                const [from, to] = strip.recording.times(table, row);
                return [timeline.scale.x((from + to) / 2 - strip.offset), y + height / 2];
                """,
                table,
                row,
                strip,
            )
        )

    def pointer(self, x: float, y: float) -> ActionChains:
        """Actions that begin with the pointer at a pixel of the canvas."""
        canvas = self.driver.find_element(By.TAG_NAME, "canvas")
        middle = canvas.size["width"] / 2, canvas.size["height"] / 2
        chain = ActionChains(self.driver, duration=0)
        return chain.move_to_element_with_offset(canvas, round(x - middle[0]), round(y - middle[1]))

    def click_on(self, table: str, row: int, strip: int = 0) -> None:
        self.pointer(*self.place(table, row, strip)).click().perform()
        self.frame()

    def wheel(self, dx: int, dy: int, *, ctrl: bool = False) -> None:
        """Turn the wheel, or move two fingers on a touchpad, over the middle of the canvas."""
        box = self.driver.find_element(By.TAG_NAME, "canvas").rect
        event = {
            "type": "mouseWheel",
            "x": box["x"] + box["width"] / 2,
            "y": box["y"] + box["height"] / 2,
            "deltaX": dx,
            "deltaY": dy,
            "modifiers": 2 if ctrl else 0,
        }
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)
        self.frame()

    def complaints(self) -> list[str]:
        """What the browser has to complain about since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the page was opened."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] != "Network.requestWillBeSent":
                continue
            # A browser that just started may still be loading its own first page.
            if not message["params"]["documentURL"].startswith("chrome://"):
                found.append(message["params"]["request"]["url"])
        return found


@functools.cache
def _options(profile: str) -> Options:
    options = Options()
    options.binary_location = CHROMIUM or ""
    for flag in (*_FLAGS, f"--window-size={WIDTH},{HEIGHT}", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return options


def start(profile: Path) -> Page:
    """A browser with an empty profile in that folder; `driver.quit` ends it."""
    driver = webdriver.Chrome(options=_options(str(profile)), service=Service(DRIVER))
    driver.set_script_timeout(30)
    size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    return Page(driver)


__all__ = ["HEIGHT", "WIDTH", "By", "Keys", "Page", "needs_chromium", "start"]
