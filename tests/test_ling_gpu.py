"""The embedded loop on CUDA: the same structure, graphs captured by CUDA itself."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from bubblescope.targets.ling import scheduler  # noqa: E402
from bubblescope.targets.ling.config import Config  # noqa: E402
from bubblescope.targets.ling.target import Ling  # noqa: E402
from optimizations.registry import applied  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_the_pass_changes_no_token_on_cuda() -> None:
    given = []
    for passes in ([], ["seq-len-sync"]):
        target = Ling("cuda", config=Config.tiny(), seed=3)
        target.start()
        with applied(passes, target):
            for _ in range(220):
                target.step()
        target.stop()
        given.append(target.tokens)
    assert len(given[0]) > 500
    assert given[0] == given[1]


def test_the_read_back_on_cuda_is_named_by_its_line() -> None:
    from bubblescope.diagnose import diagnose
    from bubblescope.targets.record import record

    target = Ling("cuda", config=Config.tiny())
    backend = target.backends()[0]
    backend.prepare()  # type: ignore[attr-defined]
    target.start()
    recording = record(target, backend, first=2, steps=10)
    target.stop()
    site = diagnose(recording.timeline, window=recording.window).reads[0].site
    assert site is not None
    assert site.file == scheduler.__file__
    assert site.function.endswith("_read_length")
