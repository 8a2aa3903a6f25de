"""The pages of ablations and of two recordings in headless Chromium."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from bubblescope.report.ablation_files import ChangeJson, CheckedJson, PlanJson
from bubblescope.view import ablation_page
from tests import view_pages
from tests.browser import WIDTH, Page, needs_chromium, start
from tests.loops import with_read, without
from tests.view_ablation import ablation

pytestmark = needs_chromium
US = 1_000


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory):
    page = start(tmp_path_factory.mktemp("profile"))
    yield page
    page.driver.quit()


def test_an_ablation_is_a_waterfall_over_its_table(browser: Page, tmp_path):
    path = tmp_path / "page.html"
    traces = {0: view_pages.of(with_read().timeline()), 2: view_pages.of(without().timeline())}
    path.write_bytes(ablation_page(ablation(), traces))
    page = browser.open(path.as_uri())
    assert page.complaints() == []
    assert page.texts("table.ablation tbody tr") == [
        "none 100 98 to 102 130 50 20,000 40 1.0 1.0 25 % show",
        "+ <b>keep</b> 80 79 to 81 95 40 25,000 -20.0 % -22.0 % to -18.0 % faster "
        "-21.0 % 20 0.0 1.0 31 % passed",
        "+ other 80 79 to 81 95 40 25,063 -0.3 % -1.1 % to +0.9 % noise - "
        "- - - 31 % not tested show",
        "in all, against none -20.2 % -22.0 % to -18.1 % faster -",
    ]
    assert page.texts("#table .notes li") == [
        "+ other: nothing predicted, not recorded",
        "noise: the baseline against itself shows up to 1.0 %",
    ]
    assert "cumulative: 3 starts of 5 rounds of 200 steps" in page.text("#side")
    charts = page.timeline(
        """document.getElementById("chart").data.map(({ name, base, y, error_y }) =>
             ({ name, base, y, up: error_y?.array, down: error_y?.arrayminus }))"""
    )
    steps, predicted, measured = charts
    assert steps["base"] == [0, 80, 79.8]
    assert steps["y"] == pytest.approx([100, 20, 0.2])
    assert (predicted["name"], predicted["y"]) == ("predicted", [None, 79, None])
    assert measured["y"] == [100, 80, 79.8]
    assert measured["up"] == pytest.approx([2, 1, 1.4])
    assert measured["down"] == pytest.approx([2, 1, 0.9])
    changes = page.timeline(
        'document.getElementById("chart").layout.annotations.map(({ text }) => text)'
    )
    assert changes == ["100 µs", "-20.0 %", "-0.3 %"]
    ticks = page.texts("#chart .xtick")
    assert ticks == ["none", "+ <b>keep</b>", "+ other"]
    # The last row's recording is shown under the baseline's; each row with one leads to it.
    shown = "timeline.strips.map((strip) => bubblescope.recordings.indexOf(strip.recording))"
    assert page.timeline(shown) == [0, 1]
    # Each kernel takes 60 us of its step, with the read and without.
    assert "none → + other, µs a step: busy 60 → 60" in page.text("#toolbar .legend")
    page.click('[aria-label="Show the recording of none"]')
    assert page.timeline(shown) == [0]


def test_an_ablation_of_one_start_claims_no_interval_and_all_fits(browser: Page, tmp_path):
    """Eight rows with long names, as of the ladder of SGLang."""
    made = ablation()
    none = msgspec.structs.replace(
        made.rows[0], interval_ns=None, idle_ns=None, reads=None, launches=None, floor_share=None
    )
    change = ChangeJson("none", -0.1, None, None, "no interval", None, "a-pass: declares no model")
    checks = [CheckedJson("tokens", "not tested", "no margin"), CheckedJson("state", "passed", "")]
    passes = [
        msgspec.structs.replace(
            none, label=f"+ a-rather-long-name-{n}", change=change, gates=checks, gate="passed"
        )
        for n in range(7)
    ]
    plan = PlanJson("cumulative", 1, 4, 100, 20, 1)
    made = msgspec.structs.replace(made, rows=[none, *passes], total=None, plan=plan, floor_ns=None)
    path = tmp_path / "page.html"
    path.write_bytes(ablation_page(made))
    page = browser.open(path.as_uri())
    assert page.complaints() == []
    assert "1 start of 4 rounds of 100 steps" in page.text("#side")
    assert page.texts("table.ablation thead th") == [
        *("pass", "step µs", "p99 µs", "TPOT µs", "tok/s", "change", "verdict", "gate")
    ]
    rows = ", ".join(row.label for row in passes)
    assert page.texts("#table .notes li") == [
        f"{rows}: gate tokens not tested, no margin",
        f"{rows}: nothing predicted, a-pass: declares no model",
    ]
    names, errors = page.timeline(
        """(({ data }) => [data.map(({ name }) => name), data.at(-1).error_y.visible])(
             document.getElementById("chart"))"""
    )
    assert (names, errors) == (["step", "measured"], False)
    boxes = boxes_of(page, "#chart .xtick text")
    assert len(boxes) == 8
    assert all(a[1] < b[0] for a, b in itertools.pairwise(boxes))
    assert page.timeline("document.getElementById('table').scrollWidth") <= WIDTH


def boxes_of(page: Page, selector: str) -> list[list[float]]:
    """Left and right edge of each, from left to right."""
    found = page.run(
        """return [...document.querySelectorAll(arguments[0])].map((e) => {
             const { left, right } = e.getBoundingClientRect();
             return [left, right];
           })""",
        selector,
    )
    return sorted(found)


def test_both_of_a_comparison_are_in_view_on_a_small_screen(browser: Page, tmp_path):
    names = ("ling3-sglang-h200-node", "ling3-sglang-h200-seq-len-sync-node")
    a, b = (view_pages.of_file(name, (200, 210)) for name in names)
    page = browser.open(view_pages.write_both(a, b, tmp_path))
    bottoms = page.timeline(
        """timeline.strips.map(({ places }) =>
             Math.max(...places.map(({ y, lane }) => y + lane.height)))"""
    )
    assert bottoms[0] < bottoms[1] <= page.timeline("timeline.height")
    # What each kind of time took, before and after, as the JSON reports have it.
    told = [view_pages.report(side)["steps"] for side in (a, b)]
    before, after = (f"{round(steps['busy_ns'] / 1000):,}" for steps in told)
    assert f"A → B, µs a step: busy {before} → {after}" in page.text("#toolbar .legend")


def test_a_comparison_has_both_with_their_steps_aligned(browser: Page, tmp_path):
    a, b = (
        view_pages.of(with_read().timeline(), label="a"),
        view_pages.of(without().timeline(), label="b"),
    )
    page = browser.open(view_pages.write_both(a, b, tmp_path))
    assert page.complaints() == []
    # Steps begin with their bubbles: of A at 60 + 100 k us of the page, of B at 60 + 70 k.
    page.choose("Step of A to align", "2")
    page.choose("Step of B to align", "3")
    assert page.run("return bubblescope.timeline.strips.map((s) => s.offset)") == [
        160 * US,
        200 * US,
    ]
    x = [page.place("bubble", row, strip)[0] for strip, row in ((0, 1), (1, 2))]
    per_pixel = page.run("return bubblescope.timeline.scale.perPixel")
    # Both bubbles begin at the left; A's is 40 us long, B's 10.
    assert x[0] - x[1] == pytest.approx(15 * US / per_pixel)
    page.click('[aria-label="Both to the next step"]')
    assert page.run("return bubblescope.timeline.strips.map((s) => s.offset)") == [
        260 * US,
        270 * US,
    ]
    summary = page.text("#side")
    assert "Gone: cudaStreamSynchronize" in summary
    page.click('[data-side="1"] .finding')
    assert (
        page.run("return bubblescope.timeline.strips.indexOf(bubblescope.timeline.selected.strip)")
        == 1
    )
