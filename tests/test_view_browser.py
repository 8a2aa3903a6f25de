"""The pages of recordings in headless Chromium: what they show, and what a reader can do."""

from __future__ import annotations

import itertools
import re

import pytest

from bubblescope.timeline import Timeline
from tests import view_pages
from tests.browser import HEIGHT, WIDTH, By, Keys, Page, needs_chromium, start
from tests.loops import with_read
from tests.synthetic import TraceBuilder

pytestmark = needs_chromium
US = 1_000
SGLANG, WINDOW = "ling3-sglang-h200", (200, 210)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory):
    page = start(tmp_path_factory.mktemp("profile"))
    yield page
    page.driver.quit()


@pytest.fixture(scope="module")
def made():
    return view_pages.of(with_read().timeline(), label="loop.json")


@pytest.fixture(scope="module")
def address(made, tmp_path_factory: pytest.TempPathFactory):
    return view_pages.write(made, tmp_path_factory.mktemp("pages"))


@pytest.fixture
def loop(browser: Page, address: str) -> Page:
    """Six steps of 100 us: see tests/loops.py. The page's zero is the first kernel's beginning."""
    return browser.open(address)


@pytest.fixture(scope="module")
def sglang():
    return view_pages.of_file(SGLANG, WINDOW)


@pytest.fixture(scope="module")
def sglang_address(sglang, tmp_path_factory: pytest.TempPathFactory):
    return view_pages.write(sglang, tmp_path_factory.mktemp("pages"))


@pytest.fixture
def recorded(browser: Page, sglang_address: str) -> Page:
    return browser.open(sglang_address)


def test_it_opens_from_a_file_and_asks_nothing_of_any_network(loop: Page, address: str):
    loop.click(".finding")
    loop.press("n")
    assert loop.complaints() == []
    asked = [url for url in loop.requests() if not url.startswith(("data:", "blob:"))]
    assert asked == [address]


def test_it_fits_on_a_small_screen(recorded: Page):
    page = "document.documentElement"
    assert recorded.timeline(f"[{page}.scrollWidth, {page}.scrollHeight]") == [WIDTH, HEIGHT]
    width, height = recorded.timeline("[timeline.width, timeline.height]")
    assert width > WIDTH / 2
    assert height > HEIGHT / 2


def test_a_bubble_says_why_it_is_there(loop: Page):
    loop.click_on("bubble", 0)
    assert loop.selected() == ("bubble", 0)
    said = loop.text("#details")
    for words in (
        "40.000 µs bubble",
        "host gap 25.000 µs 62.5 %",
        "read tail 5.000 µs 12.5 %",
        "launch call 5.000 µs 12.5 %",
        "launch latency 5.000 µs 12.5 %",
        "35.000 µs of it is charged to cudaStreamSynchronize, which held the host for 65.000 µs",
        "begins 60.000 µs",
        "ended by void gemm<4>(int)",
        "launched by cudaLaunchKernel",
        "launched 10.000 µs before it began",
        "What would remove it 35.000 µs blocking read: cudaStreamSynchronize",
    ):
        assert words in said


def test_a_pointer_on_a_bubble_says_what_most_of_it_is(loop: Page):
    loop.pointer(*loop.place("bubble", 0)).perform()
    assert loop.text(".tip") == "40.000 µs bubble: host gap"


def test_an_operation_and_its_launch(loop: Page):
    loop.click_on("op", 1)
    said = loop.text("#details")
    for words in (
        "60.000 µs kernel",
        "void gemm<4>(int)",
        "stream 7 of device 0",
        "launch latency 10.000 µs",
        "after the call 5.000 µs",
    ):
        assert words in said
    loop.click("#details .link")
    assert loop.selected() == ("call", 2)
    assert "5.000 µs call cudaLaunchKernel" in loop.text("#details")
    assert "launched 1 operation" in loop.text("#details")


def test_what_is_recorded_of_an_operation_in_a_graph(browser: Page, tmp_path):
    trace = TraceBuilder()
    trace.graph(0, 5 * US, [("gemm", 10 * US, 50 * US)], graph=12)
    trace.ops[-1] |= {"node": 34, "grid": "84,2,1", "block": "128,1,1"}
    trace.copy("DtoH", 6 * US, 2 * US, 70 * US, 2 * US)
    trace.ops[-1] |= {"bytes": 4096}
    page = browser.open(view_pages.write(view_pages.of(trace.timeline()), tmp_path))
    page.click_on("op", 0)
    said = page.text("#details")
    for words in ("50.000 µs kernel", "graph 12", "graph node 34", "grid 84 x 2 x 1"):
        assert words in said
    assert "block 128 x 1 x 1" in said
    page.click_on("op", 1)
    said = page.text("#details")
    assert "bytes 4,096 bytes bytes a second 2.0 GB/s" in said
    assert "grid" not in said


def test_a_read_and_the_bubble_that_it_is_charged_with(loop: Page):
    loop.click_on("call", 1)
    said = loop.text("#details")
    for words in (
        "65.000 µs blocking read",
        "cudaStreamSynchronize",
        "held the host 65.000 µs",
        "exposes idle 35.000 µs",
    ):
        assert words in said
    assert loop.texts("#details li") == ["35.000 µs of 40.000 µs"]
    loop.driver.find_element(By.CSS_SELECTOR, "#details li .link").click()
    assert loop.selected() == ("bubble", 0)


def test_next_and_previous_bubble(loop: Page):
    for number in range(5):
        loop.press("n")
        assert loop.selected() == ("bubble", number)
    loop.press("n")
    assert loop.selected() == ("bubble", 0)
    loop.press("p")
    assert loop.selected() == ("bubble", 4)
    begin, end = loop.view()
    assert begin < 460 * US < 500 * US < end
    loop.click('[aria-label="Previous bubble (p)"]')
    assert loop.selected() == ("bubble", 3)


def test_zooming_and_moving(loop: Page):
    whole = loop.view()
    # The window is 20 to 580 us of the recording, with a hundredth of it on either side.
    assert whole == pytest.approx((-5.6 * US, 565.6 * US))
    loop.press("w")
    closer = loop.view()
    assert closer[1] - closer[0] == pytest.approx((whole[1] - whole[0]) / 1.4)
    assert sum(closer) == pytest.approx(sum(whole))
    loop.press("d")
    right = loop.view()
    assert right[0] - closer[0] == pytest.approx(0.15 * (closer[1] - closer[0]))
    loop.press("a")
    assert loop.view() == pytest.approx(closer)
    loop.press("s")
    assert loop.view() == pytest.approx(whole)
    loop.wheel(0, -200, ctrl=True)
    wheeled = loop.view()
    assert wheeled[1] - wheeled[0] < (whole[1] - whole[0]) / 2
    assert sum(wheeled) == pytest.approx(sum(whole), rel=0.01)
    loop.wheel(100, 0)
    per_pixel = (wheeled[1] - wheeled[0]) / loop.run("return bubblescope.timeline.width")
    assert loop.view()[0] - wheeled[0] == pytest.approx(100 * per_pixel)
    loop.press("f")
    assert loop.view() == pytest.approx(whole)
    loop.click('[aria-label="Zoom in (w)"]')
    closer = loop.view()
    assert closer[1] - closer[0] == pytest.approx((whole[1] - whole[0]) / 1.6)
    loop.click('[aria-label="Zoom out (s)"]')
    assert loop.view() == pytest.approx(whole)
    # All lanes are in view here: the wheel alone zooms.
    loop.wheel(0, -200)
    assert loop.view()[1] - loop.view()[0] < whole[1] - whole[0]
    loop.click('[aria-label="Show the whole window (f)"]')
    assert loop.view() == pytest.approx(whole)


def test_dragging_moves_the_picture(loop: Page):
    loop.press("ww")
    before = loop.view()
    loop.pointer(500, 380).click_and_hold().move_by_offset(-120, 0).release().perform()
    per_pixel = (before[1] - before[0]) / loop.run("return bubblescope.timeline.width")
    assert loop.view()[0] - before[0] == pytest.approx(120 * per_pixel)
    assert loop.selected() is None


def test_a_ruler_takes_the_edges_that_it_is_near_to(loop: Page):
    x, y = loop.place("bubble", 2)
    half = 20 * US / loop.run("return bubblescope.timeline.scale.perPixel")
    chain = loop.pointer(x - half + 2, y).key_down(Keys.SHIFT).click_and_hold()
    chain.move_by_offset(round(2 * half) - 5, 0).release().key_up(Keys.SHIFT).perform()
    ruler = loop.run("return bubblescope.timeline.ruler")
    assert ruler == {"from": 260 * US, "to": 300 * US}
    loop.press(Keys.ESCAPE)
    assert loop.run("return bubblescope.timeline.ruler") is None


def test_search(loop: Page):
    loop.press("/")
    loop.press("GEMM")
    assert loop.text("#toolbar output") == "6"
    loop.press(Keys.ENTER)
    assert (loop.text("#toolbar output"), loop.selected()) == ("1 of 6", ("op", 0))
    loop.press(Keys.ENTER)
    assert loop.selected() == ("op", 1)
    loop.press_with(Keys.SHIFT, Keys.ENTER)
    assert loop.selected() == ("op", 0)
    loop.press(Keys.BACKSPACE * 4 + "no such")
    assert loop.text("#toolbar output") == "none"
    loop.press(Keys.ESCAPE)
    assert loop.text("#toolbar output") == ""
    assert loop.selected() is None


def test_the_findings_are_those_of_the_json_report(recorded: Page, sglang):
    told = view_pages.report(sglang)["findings"]
    shown = recorded.texts("#side .finding")
    assert len(shown) == len(told)
    for n, (text, finding) in enumerate(zip(shown, told, strict=True)):
        title, site = finding["title"], finding["site"]
        if site:
            title = title.replace(site["file"], "/".join(site["file"].split("/")[-2:]))
        assert text.startswith(f"{n + 1} {title}")
        per_step = finding["exposed_idle_ns_per_step"]
        rounded = f"{per_step / 1000:,.0f}" if per_step >= 9950 else f"{per_step / 1000:.1f}"
        assert text.endswith(f"{rounded} µs a step")
        if finding["passes"]:
            assert f"pass: {', '.join(finding['passes'])}" in text


def test_a_finding_leads_to_its_places_which_add_up_to_its_idle(recorded: Page, sglang):
    told = view_pages.report(sglang)["findings"]
    sums = recorded.timeline(
        """recording.report.findings.map((_, n) =>
             recording.longestPlaces(n).reduce((sum, row) => sum + recording.place.ns[row], 0))"""
    )
    assert sums == [f["exposed_idle_ns"] for f in told]
    charged = []
    for turn in range(3):
        if turn == 0:
            recorded.click(".finding")
        else:
            recorded.press("]")
        table, row = recorded.selected()
        assert table == "bubble"
        x, _ = recorded.place("bubble", row)
        assert 0 <= x <= recorded.timeline("timeline.width")
        assert f"place {turn + 1} of" in recorded.text("#place")
        said = re.search(r"([\d,.]+) µs of it is charged to", recorded.text("#details"))
        charged.append(round(float(said[1].replace(",", "")) * 1000))
    assert charged == sorted(charged, reverse=True)
    recorded.press("[")
    assert "place 2 of" in recorded.text("#place")


def test_bubbles_and_steps_add_up_to_the_json_report(recorded: Page, sglang):
    told = view_pages.report(sglang)
    pieces = recorded.timeline(
        """Array.from(recording.piece.part).map((part, n) =>
             [recording.parts[part], recording.piece.length[n]])"""
    )
    parts = dict.fromkeys(told["parts_ns"], 0)
    for part, ns in pieces:
        parts[part] += ns
    assert parts == told["parts_ns"]
    bars = recorded.timeline(
        """document.getElementById("chart").data.map(({ name, y }) =>
             [name, y.map((us) => Math.round(us * 1000))])"""
    )
    steps = sglang.diagnosis.steps
    assert dict(bars)["busy"] == steps.busy_ns.tolist()
    drawn = [sum(column) for column in zip(*(y for _, y in bars), strict=True)]
    assert drawn == [step["duration_ns"] for step in told["steps"]["each"]]


def test_the_first_screen_says_in_figures_where_the_step_goes(recorded: Page, sglang):
    steps = view_pages.report(sglang)["steps"]
    told = {"busy": steps["busy_ns"]} | {k: ns for k, ns in steps["parts_ns"].items() if ns}
    figures = " ".join(f"{label} {ns / 1000:,.0f}" for label, ns in told.items())
    assert recorded.text("#toolbar .legend") == f"µs a step: {figures}"


def test_a_bar_leads_to_its_step(recorded: Page, sglang):
    bars = recorded.driver.find_elements(By.CSS_SELECTOR, "#chart .trace.bars .point")
    ActionsAt(recorded).click(bars[3])
    start, end = recorded.view()
    zero = sglang.diagnosis.devices[0].start
    steps = sglang.diagnosis.steps
    begin, stop = int(steps.start[3]) - zero, int(steps.end[3]) - zero
    assert start < begin < stop < end
    assert end - start < 1.2 * (stop - begin)


class ActionsAt:
    """Clicks on parts of charts, which lie under a layer that takes the pointer."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def click(self, element) -> None:
        box = element.rect
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            event = {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1}
            self.page.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event)
        self.page.frame()
        self.page.frame()


def test_two_steps_laid_over_each_other_begin_together(loop: Page):
    loop.choose("Go to a step", "1")
    loop.choose("Lay another step over it", "3")
    offset, clip, title = loop.run(
        "const s = bubblescope.timeline.strips[1]; return [s.offset, s.clip, s.title]"
    )
    # Steps begin with their bubbles: 1 at 60 us of the page, 3 at 260 us, each 100 us long.
    assert (offset, clip) == (200 * US, [260 * US, 360 * US])
    assert title == "step 3, moved to begin with step 1"
    assert loop.place("bubble", 0)[0] == pytest.approx(loop.place("bubble", 2, strip=1)[0])
    loop.click_on("bubble", 2, strip=1)
    assert loop.selected() == ("bubble", 2)
    loop.choose("Lay another step over it", "no overlay")
    assert loop.run("return bubblescope.timeline.strips.length") == 1


def test_a_bubble_narrower_than_a_pixel_shows(browser: Page, tmp_path):
    trace = TraceBuilder()
    for k in range(2_000):  # 20 us each, and one bubble of 100 ns in these 40 ms
        late = 100 if k >= 1_000 else 0
        trace.launch("kernel", 20 * US * k, US, start=20 * US * k + 5 * US + late, run=20 * US)
    page = browser.open(view_pages.write(view_pages.of(trace.timeline()), tmp_path))
    assert page.timeline("Array.from(recording.bubble.length)") == [100]
    x = page.timeline("timeline.scale.x(recording.bubble.start[0])")
    page.timeline("timeline.draw()")
    bottom = page.timeline(
        """timeline.strips[0].places.filter(({ lane }) => lane.kind === "bubbles")
             .map(({ y, lane }) => y - timeline.scrollY + lane.height - 1)[0]"""
    )
    before, at, after = (
        page.timeline("Array.from(timeline.context.getImageData(a, b, 1, 1).data)", pixel, bottom)
        for pixel in (int(x) - 3, int(x), int(x) + 3)
    )
    assert before == after != at


def written(page: Page) -> list[tuple[str, float, float, float]]:
    """Texts on the canvas, from above: each with its height and its left and right edge."""
    return page.run(
        """
        const { timeline } = bubblescope;
        const { context } = timeline;
        const found = [];
        context.fillText = (text, x, y) => {
          found.push([text, y, x, x + context.measureText(text).width]);
        };
        timeline.draw();
        delete context.fillText;
        return found;
        """
    )


def test_numbers_of_many_steps_do_not_run_into_each_other(browser: Page, tmp_path):
    page = browser.open(view_pages.write(view_pages.of(with_read(80).timeline()), tmp_path))
    numbers = [(left, right) for _, y, left, right in written(page) if y == 11]
    assert len(numbers) > 20
    assert all(a[1] < b[0] for a, b in itertools.pairwise(numbers))
    ticks = page.driver.find_elements(By.CSS_SELECTOR, "#chart .xtick text")
    edges = [(t.rect["x"], t.rect["x"] + t.rect["width"]) for t in ticks]
    assert len(edges) > 10
    assert all(a[1] < b[0] for a, b in itertools.pairwise(edges))
    assert [int(t.text) % 5 for t in ticks] == [0] * len(ticks)


def test_a_match_in_a_folded_lane_unfolds_it(browser: Page, tmp_path):
    trace = TraceBuilder()
    for k in range(3):
        t = 100 * US * k
        trace.range("python", "outer", t, 90 * US)
        trace.range("python", "inner", t + US, 80 * US)
        trace.launch("gemm", t + 2 * US, US, t + 10 * US, 50 * US)
    page = browser.open(view_pages.write(view_pages.of(trace.timeline()), tmp_path))
    folded = "timeline.strips[0].lanes.find(({ kind }) => kind === 'python').collapsed"
    assert page.timeline(folded) is True
    page.press("/")
    page.press("inner" + Keys.ENTER)
    assert page.selected()[0] == "range"
    assert page.timeline(folded) is False


def test_keys_work_after_a_step_was_chosen_and_rest_while_help_is_open(loop: Page):
    loop.choose("Go to a step", "2")
    step = loop.view()
    loop.press("w")
    closer = loop.view()
    assert closer[1] - closer[0] == pytest.approx((step[1] - step[0]) / 1.4)
    loop.press("n")
    chosen = loop.selected()
    loop.press("?")
    loop.press("w")
    loop.press(Keys.ESCAPE)
    assert loop.run("return document.getElementById('help').open") is False
    assert loop.selected() == chosen
    assert loop.view()[1] - loop.view()[0] <= closer[1] - closer[0]


def test_light_and_dark(loop: Page):
    def ground() -> tuple[int, str]:
        """How bright the canvas is, of 765, and the colour of text."""
        loop.frame()
        pixel = loop.timeline(
            "Array.from(timeline.context.getImageData(2, timeline.height - 3, 1, 1).data)"
        )
        return sum(pixel[:3]), loop.timeline("getComputedStyle(document.body).color")

    loop.timeline("document.documentElement.dataset.theme = 'dark'")
    loop.click("#theme")
    light, ink = ground()
    loop.click("#theme")
    dark, on_dark = ground()
    assert light > 600 > 200 > dark
    assert ink != on_dark


def test_every_control_has_a_name_and_shows_its_focus(loop: Page):
    nameless = loop.run(
        """
        return [...document.querySelectorAll("button, select, input, canvas, [role]")]
          .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim())).length
        """
    )
    assert nameless == 0
    details = loop.driver.find_element(By.ID, "details")
    assert details.get_attribute("aria-live") == "polite"
    loop.press(Keys.TAB)
    outline = loop.run("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    loop.press("?")
    assert "next, previous bubble" in loop.text("#help")


def test_lanes_fold(recorded: Page):
    before = recorded.run("return bubblescope.timeline.total")
    label = recorded.driver.find_element(By.CSS_SELECTOR, ".lane-label[aria-expanded=true]")
    label.click()
    recorded.frame()
    assert recorded.run("return bubblescope.timeline.strips[0].lanes[0].collapsed") is True
    assert recorded.run("return bubblescope.timeline.strips[0].lanes[0].height") < 20 < before


def hostile() -> Timeline:
    """Names that would run, break out of a script, or turn the text around them."""
    evil = "</script><script>globalThis.ran = 1</script><img src=x onerror='globalThis.ran = 1'>"
    turn = "\u202egpj.exe\u202c \u2066x\u2069 \"'`${globalThis.ran = 1}` <b>bold</b> \ud800"
    trace = TraceBuilder()
    for k in range(3):
        t = 100 * US * k
        trace.range("annotation", f"{evil} {turn}", t, 90 * US)
        trace.launch(
            evil, t + 10 * US, 5 * US, t + 20 * US, 60 * US, call="cudaLaunchKernel<script>"
        )
        trace.sync(t + 20 * US, 65 * US)
        trace.launch(turn, t + 86 * US, US, t + 90 * US, US)
    made = trace.timeline()
    meta = type(made.meta)(source=f"{evil}{turn}.json", format="synthetic", about={"run": evil})
    return type(made)(meta, **made.tables())


def test_hostile_names_run_nothing(browser: Page, tmp_path):
    address = view_pages.write(view_pages.of(hostile()), tmp_path)
    page = browser.open(address)
    assert page.complaints() == []
    for key in "nnn":
        page.press(key)
    page.press("f")
    page.timeline("timeline.view(69.9e3, 71.1e3)")  # where the second operation is
    on_canvas = "".join(text for text, *_ in written(page))
    assert "\ufffdgpj" in on_canvas
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", on_canvas)
    page.press("f")
    page.click_on("op", 0)
    assert "</script><script>globalThis.ran = 1</script>" in page.text("#details")
    page.click_on("op", 1)
    said = page.text("#details")
    assert "gpj.exe" in said
    assert "<b>bold</b>" in said
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", said)
    page.press("/")
    page.press("<script>")
    page.press(Keys.ENTER)
    page.press(Keys.ESCAPE + "f")
    page.pointer(*page.place("op", 0)).perform()
    assert page.run("return globalThis.ran ?? null") is None
    assert (
        page.run("return document.querySelectorAll('img, #details b b, #details script').length")
        == 0
    )
    assert page.requests() == [address]
    assert page.complaints() == []
