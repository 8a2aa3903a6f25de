"""What the benchmark of the kernels compares, in small shapes: it needs no GPU to be wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="triton is not installed")
torch = pytest.importorskip("torch")

from benchmarks import ling_kernels as benchmark  # noqa: E402
from tests.triton_device import DEVICE, NAN  # noqa: E402

SHAPES = {
    "HIDDEN": 64, "HEADS": 2, "HEAD": 32, "EXPERTS": 16, "WIDTH": 16, "TOP": 2, "VOCABULARY": 96,
    "RANK": 32, "ROPE": 16, "DENSE": 64, "GROUPS": 4, "CONTEXT": 64, "BEFORE": 20,
}  # fmt: skip
TOKENS = 3


@pytest.fixture(scope="module")
def cases() -> Iterator[list[benchmark.Case]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benchmark, "DEVICE", DEVICE)
        for name, value in SHAPES.items():
            patch.setattr(benchmark, name, value)
        torch.manual_seed(0)
        kinds = "moe_cases", "projections", "kda_cases", "mla_cases"
        yield [case for kind in kinds for case in getattr(benchmark, kind)(TOKENS)]


def expected(case: benchmark.Case, m: object) -> list[torch.Tensor]:
    case.spoil(m)
    with torch.no_grad():
        return benchmark.outcome(case, case.plain(m), m)


def test_every_kernel_and_every_reference_agree(cases: list[benchmark.Case]) -> None:
    assert len(cases) == 16
    for case in cases:
        m = case.make()
        wanted = expected(case, m)
        assert benchmark.checked(case, case.plain, m, wanted) == 0, case.name
        assert benchmark.checked(case, case.ours, m, wanted) <= case.tolerance, case.name


def test_a_kernel_that_writes_nothing_is_wrong(cases: list[benchmark.Case]) -> None:
    """Though the reference wrote the same memory before it."""
    kept = [case for case in cases if case.written(case.make())]
    assert [case.name.split()[0] for case in kept] == ["commit", "MLA"]
    for case in kept:
        m = case.make()
        wanted = expected(case, m)
        given = wanted[: len(wanted) - len(case.written(m))]
        assert benchmark.checked(case, lambda m, given=given: given, m, wanted) == float("inf")


def test_one_layer_of_many_that_is_not_committed_is_wrong(cases: list[benchmark.Case]) -> None:
    case = next(c for c in cases if c.name.startswith("commit"))
    m = case.make()
    wanted = expected(case, m)
    assert len(wanted) == 70

    def all_but_one(m: object) -> tuple[()]:
        case.ours(m)
        case.written(m)[31].fill_(NAN)
        return ()

    assert benchmark.checked(case, all_but_one, m, wanted) == float("inf")


@pytest.mark.parametrize("value", [NAN, 0.0])
def test_a_reference_without_numbers_is_no_reference(value: float) -> None:
    nothing = torch.full((3,), value)
    with pytest.raises(RuntimeError, match="nothing to compare to"):
        benchmark.error([nothing], [nothing])


def run(monkeypatch: pytest.MonkeyPatch, out: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The whole program, without a device to time on. Returns its exit code and what it wrote."""

    def graph_of(body: Callable[[Any], Any], made: list[Any]) -> tuple[Callable[[], Any], Any]:
        def replay() -> Any:
            return [body(m) for m in made][-1]

        return replay, replay()

    def timed(replay: Callable[[], Any], _launches: int) -> list[float]:
        replay()
        return [2.0, 1.0, 3.0]

    for name, value in (
        *SHAPES.items(),
        ("DEVICE", DEVICE),
        ("copy_bandwidth", lambda: 4e12),
        ("copies", lambda case: 2),
        ("graph_of", graph_of),
        ("timed", timed),
    ):
        monkeypatch.setattr(benchmark, name, value)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "none")
    monkeypatch.setattr(sys, "argv", ["ling_kernels.py", str(out), *arguments])
    code = benchmark.main()
    return code, json.loads((out / "ling_kernels.json").read_text())


def test_it_writes_a_row_of_each_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code, said = run(monkeypatch, tmp_path / "new", "--only", "commit")
    assert code == 0
    assert said["wrong"] == said["skipped"] == []
    ways = [(row["tokens"], row["what"], row["error"], row["us"]) for row in said["rows"]]
    assert ways == [(t, way, 0.0, 2.0) for t in (6, 1) for way in ("torch", "ours")]


def test_a_case_that_fails_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("no such kernel\nand more")

    monkeypatch.setattr(benchmark, "argmax", broken)
    code, said = run(monkeypatch, tmp_path, "--only", "a")
    assert code == 1
    failed = [f"argmax of 96 logits, {t} tokens: no such kernel" for t in (6, 1)]
    assert said["wrong"] == failed
    assert f"WRONG: {failed[0]}\n" in capsys.readouterr().out
    assert len(said["rows"]) > 20


def test_what_there_is_no_time_for_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, said = run(monkeypatch, tmp_path, "--only", "argmax", "--seconds", "0")
    assert code == 0
    assert said["skipped"] == [f"argmax of 96 logits, {t} tokens" for t in (6, 1)]
