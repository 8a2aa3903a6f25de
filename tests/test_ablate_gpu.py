"""An ablation on CUDA: floor, throttling and graph-level recordings beside the timed rounds."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_a_small_ablation_on_cuda() -> None:
    command = [sys.executable, "-m", "bubblescope", "ablate", "--device", "cuda", "--layers", "6"]
    shape = ["--starts", "1", "--rounds", "2", "--steps", "50", "--no-gates", "--json"]
    done = subprocess.run(
        [*command, *shape, "--passes", "seq-len-sync"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    none, sync = report["rows"]
    assert none["launches"] == 8
    assert (none["reads"], sync["reads"]) == (2, 1)
    assert none["throttled"] is not None
    assert none["tokens_per_step"] == sync["tokens_per_step"]
    assert none["idle_ns"] is not None
    assert sync["idle_ns"] is not None
    assert 0 < none["floor_share"] < 1
    assert report["floor_ns"] == pytest.approx(none["floor_share"] * none["step_ns"], rel=1e-3)
    assert sync["predicted_ns"] is not None
