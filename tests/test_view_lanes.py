"""What the timeline draws in headless Chromium: arrows, tracks, ranks, sharp columns."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bubblescope.view import diagnosis_page
from bubblescope.view.serve import PageServer
from tests import view_pages
from tests.browser import HEIGHT, WIDTH, Page, needs_chromium, start
from tests.loops import with_read
from tests.synthetic import TraceBuilder

pytestmark = needs_chromium
US = 1_000


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory):
    page = start(tmp_path_factory.mktemp("profile"))
    yield page
    page.driver.quit()


@pytest.fixture(scope="module")
def loop(browser: Page, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """As in tests/loops.py, its reads said to wait for their stream; zero is 20 us of the loop."""
    trace = TraceBuilder()
    for k in range(6):
        t = 100 * US * k
        trace.step(k, t, 90 * US).launch("gemm", t + 10 * US, 5 * US, t + 20 * US, 60 * US)
        trace.sync(t + 20 * US, 65 * US, row="stream")
    made = view_pages.of(trace.timeline())
    return browser.open(view_pages.write(made, tmp_path_factory.mktemp("pages")))


def test_arrows_from_the_launch_and_to_the_read_that_waited(loop: Page):
    loop.click_on("bubble", 0)
    launch = {"kind": "launch", "from": ["call", 2, 90 * US], "to": ["op", 1, 100 * US]}
    read = {"kind": "read", "from": ["op", 0, 60 * US], "to": ["call", 1, 65 * US]}
    assert loop.timeline("timeline.arrows") == [launch, read]
    loop.click_on("op", 0)
    first = {"kind": "launch", "from": ["call", 0, -10 * US], "to": ["op", 0, 0]}
    assert loop.timeline("timeline.arrows") == [first, read]
    loop.click_on("call", 2)
    assert loop.timeline("timeline.arrows") == [launch]


def test_an_arrow_is_drawn_from_lane_to_lane(loop: Page):
    def between() -> list[int]:
        """The pixels of the bubble lane in the middle of the launch arrow of operation 1."""
        x = loop.timeline("timeline.scale.x(97.5e3)")
        _, y = loop.place("bubble", 0)
        loop.timeline("timeline.draw()")
        return loop.timeline(
            "Array.from(timeline.context.getImageData(a - 6, b, 12, 1).data)", int(x), int(y)
        )

    loop.timeline("timeline.select(null, null, -1)")
    before = between()
    loop.timeline('timeline.select(timeline.strips[0], "op", 1)')
    assert between() != before


def test_operations_queued_and_how_long_they_take(loop: Page):
    def queued(begin: int, end: int) -> list[int]:
        track = "timeline.strips[0].tracks.get(0).queued"
        return loop.timeline(f"{track}.between(a, b)", begin * US, end * US)

    def ahead(begin: int, end: int) -> int:
        track = "timeline.strips[0].tracks.get(0).ahead"
        return loop.timeline(f"{track}.between(a, b)", begin * US, end * US)

    # Operation 1 is launched from 90 us on and runs from 100 to 160.
    assert queued(65, 85) == [0, 0]
    assert queued(50, 95) == [0, 1]
    assert queued(95, 155) == [1, 1]
    assert loop.timeline("timeline.strips[0].tracks.get(0).queued.top") == 1
    assert ahead(65, 85) == 0
    assert ahead(85, 95) == 70 * US
    assert ahead(120, 130) == 40 * US


def test_several_ranks_each_have_their_lanes(browser: Page, tmp_path):
    trace = TraceBuilder()
    for rank in range(3):
        side = trace.on(rank=rank, device=rank, process=4000 + rank, thread=4000 + rank)
        for k in range(4):
            t = (100 * k + rank) * US
            side.launch("gemm", t, 5 * US, t + 10 * US, 50 * US)
    page = browser.open(view_pages.write(view_pages.of(trace.timeline()), tmp_path))
    assert page.complaints() == []
    labels = page.texts(".lane-label")
    assert labels == [
        label
        for rank in range(3)
        for label in (
            f"rank {rank}",
            f"▾ calls thread {4000 + rank}",
            f"bubbles device {rank}",
            "▾ stream 7",
            "operations queued",
            "queued time",
        )
    ]
    # Of each of three devices, four kernels of 50 us: the bar and its legend are of all together.
    assert "µs in all, sum of 3 devices: busy 600" in page.text("#toolbar .legend")
    title = page.timeline('document.getElementById("chart").layout.yaxis.title.text')
    assert title == "µs, sum of 3 devices"
    # Each rank is 1 us later than the one before it, and so are its bubbles: rows 0, 3 and 6.
    walked = []
    for _ in range(4):
        page.press("n")
        walked.append(page.selected()[1])
    assert walked == [0, 3, 6, 1]
    page.press("p")
    said = page.text("#details")
    assert "rank 2, device 2" in said
    assert "50.000 µs bubble" in said


def test_without_steps_all_of_the_window_is_one_bar(browser: Page, tmp_path):
    trace = TraceBuilder()
    for n, t in enumerate((0, 130, 190, 444)):
        trace.launch(f"kernel {n} \ud800", t * US, 5 * US, (t + 10) * US, 50 * US)
    page = browser.open(view_pages.write(view_pages.of(trace.timeline()), tmp_path))
    assert page.complaints() == []
    bars = page.timeline('document.getElementById("chart").data.map(({ x, y }) => [x, y])')
    assert [x for x, _ in bars] == [["window"]] * len(bars)
    assert sum(y[0] for _, y in bars) == pytest.approx(494)  # 10 to 504 us of the recording
    assert page.driver.find_elements("css selector", "#toolbar select") == []


def test_a_recording_of_one_operation(browser: Page, tmp_path):
    trace = TraceBuilder().launch("only", 0, 5 * US, 10 * US, 50 * US)
    page = browser.open(view_pages.write(view_pages.of(trace.timeline()), tmp_path))
    assert page.complaints() == []
    page.press("n")
    assert page.selected() is None
    assert "Nothing to act on" in page.text("#side")
    assert "There is no bubble" in page.text("#details")


def test_what_makes_the_figures_doubtful_is_said(browser: Page, tmp_path):
    trace = with_read()
    trace.lost(600 * US, 5 * US)
    made = view_pages.of(trace.timeline())
    told = [note["note"] for note in view_pages.report(made)["health"]]
    told += view_pages.report(made)["warnings"]
    assert told
    page = browser.open(view_pages.write(made, tmp_path))
    said = page.text("#side")
    for note in told:
        assert note in said


def test_columns_have_no_seams_on_finer_screens(browser: Page, tmp_path):
    def finer(density: float) -> None:
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": density, "mobile": False}
        browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    trace = TraceBuilder()
    for k in range(50):  # the host is two operations ahead all the time
        trace.launch("kernel", (20 * k - 30) * US, US, 20 * k * US, 20 * US)
    density = 1.25
    finer(density)
    try:
        page = browser.open(view_pages.write(view_pages.of(trace.timeline()), tmp_path))
        page.timeline("timeline.view(400e3, 404e3)")
        page.frame()
        track = """timeline.strips[0].places.find(({ lane }) => lane.kind === "queued")"""
        bottom = page.timeline(f"{track}.y + {track}.lane.height - 4")
        pixels = page.timeline(
            "Array.from(timeline.context.getImageData(0, a, b, 1).data)",
            round(bottom * density),
            round(300 * density),
        )
    finally:
        finer(1)
    assert {tuple(pixels[n : n + 4]) for n in range(0, len(pixels), 4)} == {tuple(pixels[:4])}


@pytest.mark.parametrize(
    ("name", "figure"),  # as the README has them
    [("diagnose", "1,175 µs a step"), ("compare", "1,184 µs"), ("ablate", "4 rounds of 100 steps")],
)
def test_the_pages_in_examples_open(browser: Page, name: str, figure: str):
    path = Path(__file__).parents[1] / "examples" / "pages" / f"{name}.html"
    page = browser.open(path.as_uri())
    assert page.complaints() == []
    assert figure in page.text("#side")
    assert path.stat().st_size < 2_100_000


def test_a_served_page_is_the_same(browser: Page):
    with PageServer(diagnosis_page(view_pages.of(with_read().timeline()))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            page = browser.open(server.address)
            page.press("n")
            assert "40.000 µs bubble" in page.text("#details")
            assert page.complaints() == []
            asked = [url for url in page.requests() if not url.startswith(("data:", "blob:"))]
            assert asked == [server.address]
        finally:
            server.shutdown()
            thread.join()
