"""nsight-python and eager stages on a real GPU."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

torch = pytest.importorskip("torch")

from bubblescope.kernels.asked import Asked, Run  # noqa: E402
from bubblescope.kernels.process import ask  # noqa: E402
from bubblescope.kernels.target import kernels  # noqa: E402
from bubblescope.targets.ling.config import Config  # noqa: E402
from bubblescope.targets.ling.target import Ling  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]
SMALL = Run(device="cuda", layers=6, step=5, steps=3)


def test_stages_without_graphs_give_the_same_tokens() -> None:
    given = []
    for graphs in (True, False):
        target = Ling("cuda", config=Config.tiny(), seed=3, graphs=graphs)
        target.start()
        for _ in range(40):
            target.step()
        target.stop()
        given.append(target.tokens)
    assert given[0] == given[1]
    assert len(given[0]) > 60


def test_a_process_that_only_runs_answers() -> None:
    assert ask(Asked("steps", SMALL)).samples == []


@pytest.mark.skipif(find_spec("nsight") is None, reason="nsight-python is not installed")
def test_nsight_python_agrees_with_the_recording() -> None:
    _, table = kernels(SMALL)
    assert table.nsight is not None
    assert table.nsight.steps == 3
    seen = [row for row in table.rows if row.nsight is not None]
    assert sum(row.total_ns for row in seen) > 0.9 * sum(
        row.total_ns for row in table.rows if row.kind == "kernel"
    )
    for row in seen[:10]:
        assert row.nsight is not None
        assert row.nsight.calls_per_step == row.calls_per_step
        assert 0.7 * row.mean_ns < row.nsight.mean_ns < 1.5 * row.mean_ns
