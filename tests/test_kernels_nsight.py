"""What nsight-python is asked and how its table is read, with a module that plays it."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the embedded loop needs torch")

from bubblescope.diagnose import diagnose  # noqa: E402
from bubblescope.errors import BubblescopeError  # noqa: E402
from bubblescope.kernels import Kernels, child, tabulate  # noqa: E402
from bubblescope.kernels.asked import BYTES, DURATION, PEAK, Answer, Asked, Run, Sample  # noqa: E402
from bubblescope.kernels.beside import (  # noqa: E402
    with_dram,
    with_dram_of_nsight,
    with_nsight,
)
from bubblescope.kernels.model import Dram, Nsight  # noqa: E402
from bubblescope.kernels.ncu import Launch  # noqa: E402
from bubblescope.kernels.process import ask  # noqa: E402
from bubblescope.targets.ling.annotated import annotated  # noqa: E402
from bubblescope.targets.ling.device import scope  # noqa: E402
from tests.test_kernels_table import loop  # noqa: E402

KERNELS = {"mul": ["mul_kernel"], "sum": ["reduce", "finish"], "view": []}
"""Kernels that each operation launches, as played here."""


class Played:
    """nsight-python 1.1 as far as it is used: annotations, runs, and the table that comes out.

    Run r of the n-th kernel launched takes 100 n + r ns.
    """

    __version__ = "1.1.0"
    VerbosityLevel = SimpleNamespace(SILENT=0)
    Tool = SimpleNamespace(CUPTI="cupti", NCU="ncu")

    def __init__(self) -> None:
        self.launched: dict[str, list[list[tuple[str, float]]]] = {}
        self.analyze = SimpleNamespace(kernel=self.kernel)
        self.asked: dict[str, Any] = {}
        self.seen: set[str] = set()
        self.run = self.count = 0

    @contextmanager
    def annotate(self, name: str) -> Iterator[None]:
        if name in self.seen:
            raise ValueError(f"Annotation name '{name}' has already been used")
        self.seen.add(name)
        found = []
        for kernel in KERNELS[name.split(": ")[1].split(" #")[0]]:
            self.count += 1
            found.append((kernel, 100.0 * self.count + self.run))
        self.launched.setdefault(name, []).append(found)
        yield

    def kernel(self, **asked: Any) -> Callable[..., Any]:
        self.asked = asked

        def profiled(function: Callable[[], None]) -> Callable[[], Any]:
            def measured() -> Any:
                for run in range(asked["runs"]):
                    self.seen, self.run, self.count = set(), run, 0
                    function()
                return SimpleNamespace(to_dataframe=lambda: self)

            return measured

        return profiled

    def to_dict(self, how: str) -> list[dict[str, Any]]:
        assert how == "records"
        records = []
        for name, runs in self.launched.items():
            if not runs[0]:
                continue
            combined = self.asked["combine_kernel_metrics"]
            totals = [functools.reduce(combined, [ns for _, ns in run]) for run in runs]
            records.append(
                {
                    "Annotation": name,
                    "Metric": DURATION,
                    "Kernel": "|".join(kernel for kernel, _ in runs[0]),
                    "AvgValue": sum(totals) / len(totals),
                    "MinValue": min(totals),
                    "MaxValue": max(totals),
                    "NumRuns": len(totals),
                }
            )
        return records


def step() -> None:
    """A stage of three operations, and a copy outside of it."""
    x = torch.ones(4)
    with scope("verify"), scope("head"):
        y = x.mul(2).view(2, 2)
        y.mul(3).sum()
    x.clone()


def test_every_operation_of_a_stage_has_an_annotation_of_its_own() -> None:
    names: list[str] = []

    @contextmanager
    def note(name: str) -> Iterator[None]:
        names.append(name)
        yield

    for _ in range(2):
        with annotated(note):
            step()
    once = ["verify.head: mul #1", "verify.head: view #1", "verify.head: mul #2"]
    assert names == 2 * [*once, "verify.head: sum #1"]


def test_kernels_of_one_annotation_are_told_apart() -> None:
    played = Played()
    found = child.measure(played, step, 3, [DURATION])
    assert found == [
        Sample("mul_kernel", {DURATION: (101, 100, 102)}),
        Sample("mul_kernel", {DURATION: (201, 200, 202)}),
        Sample("reduce", {DURATION: (301, 300, 302)}),
        Sample("finish", {DURATION: (401, 400, 402)}),
    ]
    assert (played.asked["runs"], played.asked["metrics"]) == (3, [DURATION])
    assert played.asked["thermal_mode"] == "off"
    # nsight-python looks at this, not at the signature.
    assert played.asked["combine_kernel_metrics"].__code__.co_argcount == 2


def test_mangled_names_are_read() -> None:
    records = [
        {"Annotation": "a", "Metric": DURATION, "Kernel": "_Z1kIfEvT_", "AvgValue": 5.0,
         "MinValue": 4, "MaxValue": 6, "NumRuns": 2}
    ]  # fmt: skip
    assert child.samples(records, [], 2) == [Sample("void k<float>(float)", {DURATION: (5, 4, 6)})]


def test_a_table_that_lacks_something_is_refused() -> None:
    record = {"Annotation": "a", "Metric": DURATION, "Kernel": "k", "AvgValue": 5.0,
              "MinValue": 4, "MaxValue": 6, "NumRuns": 2}  # fmt: skip
    with pytest.raises(BubblescopeError, match="a was not measured at every step"):
        child.samples([record], [], 3)
    with pytest.raises(BubblescopeError, match="did not give all kernels of a"):
        child.samples([record | {"Kernel": "k|l"}], [(1, 2)], 2)


def test_what_fails_inside_is_one_line() -> None:
    def fails() -> None:
        raise RuntimeError("first line\nsecond line")

    with pytest.raises(BubblescopeError) as raised:
        child.measure(Played(), fails, 1, [DURATION])
    assert str(raised.value).startswith("nsight-python failed: first line; ")


def test_a_tool_that_cannot_be_activated_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(tool: str) -> None:
        raise RuntimeError(f"{tool}: ERROR_INVALID_PARAMETER\nmore")

    played = SimpleNamespace(Tool=Played.Tool, activate=refuse)
    monkeypatch.setattr(child, "import_module", lambda name: played)
    with pytest.raises(BubblescopeError) as raised:
        child._nsight("cupti")
    assert str(raised.value) == (
        "nsight-python cannot use CUPTI: cupti: ERROR_INVALID_PARAMETER; "
        "it needs CUPTI 13.4 or ncu 2026.2, see `bubblescope doctor`"
    )


def test_nsight_python_that_is_not_here_is_one_line() -> None:
    """In a process of its own, as it is asked for."""
    asked = Asked("ncu", Run(device="cpu", step=1, steps=1))
    with pytest.raises(BubblescopeError, match=r"^nsight-python cannot be imported \(.*; pip inst"):
        ask(asked)


def test_a_process_that_ends_without_an_answer_is_told() -> None:
    run = Asked("steps", Run())

    def crash(_words: list[str]) -> list[str]:
        return [sys.executable, "-c", "print('why'); raise SystemExit(3)"]

    with pytest.raises(BubblescopeError, match=r"without an answer: why \(exit code 3\)"):
        ask(run, under=crash)
    with pytest.raises(BubblescopeError, match="no-such-tool: cannot be started"):
        ask(run, under=lambda _words: ["no-such-tool"])


def test_a_process_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    late = tmp_path / "late"

    def hang(_words: list[str]) -> list[str]:
        return ["sh", "-c", f"(sleep 2; touch {late}) & sleep 60"]

    began = time.monotonic()
    with pytest.raises(BubblescopeError, match=r"took over 0\.3 s; ask for fewer --steps"):
        ask(Asked("steps", Run()), under=hang, timeout_s=0.3)
    assert time.monotonic() - began < 2
    time.sleep(2.2)
    assert not late.exists()


# Beside the table ------------------------------------------------------------------------------


@pytest.fixture
def table() -> Kernels:
    """Kernels a (160 ns in the mean, twice a step), side, n::b<4> and n::b<8>, and a copy."""
    timeline = loop().timeline()
    return tabulate(timeline, diagnose(timeline))


def sample(kernel: str, *ns: float, **more: tuple[float, float, float]) -> Sample:
    mean, least, greatest = ns
    return Sample(kernel, {DURATION: (mean, least, greatest)} | more)


def test_nsight_stands_beside_the_rows_of_its_kernels(table: Kernels) -> None:
    answer = Answer(
        samples=[
            sample("a", 150, 140, 160),
            sample("a", 171, 165, 180),
            sample("side", 99.6, 98, 101),
            sample("other", 1, 1, 1),
            sample("Memcpy DtoH (Device -> Pageable)", 1, 1, 1),
        ],
        nsight="1.1.0",
        cupti="13.4.1",
    )
    found = with_nsight(table, answer, 5)
    rows = {row.name: row for row in found.rows}
    assert rows["a"].nsight == Nsight(2.0, 160, 140, 180)  # 160.5 to the even one
    assert rows["side"].nsight == Nsight(1.0, 100, 98, 101)
    assert rows["void n::b<4>(int)"].nsight is None
    assert rows["Memcpy DtoH (Device -> Pageable)"].nsight is None
    assert found.nsight is not None
    assert found.nsight.unmatched == ("Memcpy DtoH (Device -> Pageable)", "other")
    assert found.nsight.unseen_ns == 500  # b<4> and b<8>
    assert (found.nsight.version, found.nsight.cupti, found.nsight.steps) == ("1.1.0", "13.4.1", 5)


def test_nsight_beside_families() -> None:
    timeline = loop().timeline()
    table = tabulate(timeline, diagnose(timeline), by="family")
    samples = [
        sample("void n::b<4>(int)", 400, 390, 410),
        sample("void n::b<8>(int)", 100, 90, 110),
    ]
    found = with_nsight(table, Answer(samples=samples), 1)
    assert found.rows[0].nsight == Nsight(2.0, 250, 90, 410)


def test_dram_is_bytes_over_time(table: Kernels) -> None:
    launches = [
        Launch("a", 100, 3e12, 75.0),  # 300,000 bytes
        Launch("a", 300, 1e12, 25.0),  # 300,000 bytes
        Launch("side", 50, 2e12, None),
        Launch("x", 1, 1, 1),
    ]
    found = with_dram(table, launches, "2025.3.1")
    rows = {row.name: row for row in found.rows}
    assert rows["a"].dram == Dram(2, 1.5e12, 37.5, 200)
    assert rows["side"].dram == Dram(1, 2e12, None, 50)
    assert rows["void n::b<4>(int)"].dram is None
    assert found.dram is not None
    assert (found.dram.collector, found.dram.launches) == ("ncu 2025.3.1", 4)
    assert found.dram.unmatched == ("x",)


def test_dram_of_nsight_only_where_a_function_has_one_row(table: Kernels) -> None:
    figures = {BYTES: (1_000.0, 1_000.0, 1_000.0), PEAK: (40.0, 40.0, 40.0)}
    samples = [sample("a", 100, 100, 100, **figures), sample("b", 10, 10, 10, **figures)]
    found = with_dram_of_nsight(table, Answer(samples=samples, nsight="1.1.0"), "2026.2.1")
    rows = {row.name: row for row in found.rows}
    assert rows["a"].dram == Dram(1, 1e10, 40.0, 100)
    assert rows["void n::b<4>(int)"].dram is rows["void n::b<8>(int)"].dram is None
    assert found.dram is not None
    assert found.dram.unmatched == ("b",)
    assert found.dram.collector == "nsight-python 1.1.0 on ncu 2026.2.1"
