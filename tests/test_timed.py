"""How steps are timed: what is in a step's time and what is not, and the same steps each time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from bubblescope.errors import BubblescopeError
from bubblescope.targets import timed
from bubblescope.targets.timed import time_steps
from tests.ablate_toy import STEP, Toy, World, world

__all__ = ["world"]


def test_a_whole_generation_is_cut_to_what_was_asked_for() -> None:
    class Engine:
        def run(self, steps: int) -> SimpleNamespace:
            self.asked = steps
            began = (0, 5, 15, 45, 50, 60, 90, 100)
            return SimpleNamespace(began=began, tokens=36, token_steps=12)

    engine = Engine()
    found = time_steps(engine, warm_up=2, steps=3)
    assert engine.asked == 6
    assert found.steps_ns.tolist() == [30, 5, 10]
    assert (found.tokens, found.token_steps) == (36, 12)
    with pytest.raises(BubblescopeError, match=r"ended after 8 steps; 10 are needed"):
        time_steps(engine, warm_up=2, steps=7)


def test_a_target_that_tells_no_tokens_cannot_be_timed() -> None:
    with pytest.raises(BubblescopeError, match="target x: says not which tokens it gave"):
        time_steps(SimpleNamespace(name="x", step=lambda: None), 1, 1)


def test_the_end_is_asked_about_while_the_last_step_may_still_run(world: World) -> None:
    toy = Toy(world)
    toy.start()
    at: list[int] = []
    found = time_steps(toy, 2, 3, at_end=lambda: at.append(world.now))
    assert found.steps_ns.tolist() == [STEP] * 3
    assert at == [5 * STEP]  # finish has not been called
    assert (found.tokens, found.token_steps) == (6, 3)
    assert timed.time.monotonic_ns() == 5 * STEP + 12_345


def test_the_embedded_loop_runs_the_same_steps_again() -> None:
    pytest.importorskip("torch")
    from bubblescope.targets.ling.target import Ling
    from optimizations.registry import applied

    target = Ling("cpu", seed=3)
    target.start()
    given = []
    for passes in ([], ["seq-len-sync"], []):
        before = len(target.tokens)
        with applied(passes, target):
            found = time_steps(target, 10, 60)
        given.append(target.tokens[before:])
        assert found.token_steps == len(found.steps_ns) == 60
        assert (found.steps_ns > 0).all()
    target.stop()
    assert given[0] == given[1] == given[2]
    fresh = Ling("cpu", seed=3)
    fresh.start()
    for _ in range(70):
        fresh.step()
    fresh.stop()
    assert fresh.tokens == given[0]


def test_the_bytes_that_a_step_must_read() -> None:
    torch = pytest.importorskip("torch")
    from bubblescope.targets.ling.config import Config
    from bubblescope.targets.ling.floor import step_bytes
    from bubblescope.targets.ling.loop import Loop
    from bubblescope.targets.ling.weights import Weights

    c = Config.tiny()
    loop = Loop(c, Weights(0, "cpu", torch.float32))
    with torch.no_grad():
        loop.plan_and_draft()
        loop.verify()
    chosen = [len(x.feed.chosen.unique()) for x in loop.model.layers[1:]]
    # Counted from the shapes: hidden 64, inner 2 x 32, 2 heads, MLA ranks 32 and 16, fp32.
    kda = (
        3 * 64 * 64 + 3 * 64 * 4 + 64 * 64 + 2 * 64 + 64 * 64 + 2 + 64 + 32 + 64 * 64 + 2 * 32 * 32
    )
    mla = 2 * 48 * 64 + 48 * 64 + 32 + 2 * 32 * 32 + 2 * 32 * 32 + 2 * 64 + 64 * 64
    dense, expert = 3 * 128 * 64, 3 * 32 * 64
    moe = 16 * 64 + 16 + expert  # router, bias and the shared expert
    norms = 2 * 64
    verify = (kda + norms + dense) + (kda + norms + moe) + (mla + norms + moe)
    verify += sum(chosen) * expert + 64 + 512 * 64
    draft = mla + norms + moe + 2 * expert + 2 * 64 + 64 * 128 + 64 + 512 * 64
    assert step_bytes(loop) == 4 * (verify + 3 * draft)
