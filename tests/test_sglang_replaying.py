"""Drafts replayed in an engine: the hooks around a toy that verifies and commits as SGLang does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from bubblescope.targets.gated import Drafts  # noqa: E402
from bubblescope.targets.sglang.gated import GatedSGLang  # noqa: E402
from bubblescope.targets.sglang.replaying import Replay  # noqa: E402

VOCABULARY, PROMPT, DRAFTS = 97, 4, 5


def after(token: int, position: int) -> int:
    """The toy's most likely token after one at a position."""
    return (7 * token + 3 * position + 1) % VOCABULARY


class Engine:
    """Token and position alone decide; its state is the sum of the tokens in it."""

    def __init__(self, replay: Replay, wrong_at: int = -1) -> None:
        self.replay, self.wrong_at = replay, wrong_at
        self.cache = torch.zeros(64, 1, 1)
        self.state = torch.zeros(1, 3, 1, 1, 1)
        pools = SimpleNamespace(
            mamba_cache=SimpleNamespace(temporal=self.state, conv=[self.state.clone()])
        )
        runner = SimpleNamespace(
            model_config=SimpleNamespace(vocab_size=VOCABULARY),
            req_to_token_pool=SimpleNamespace(
                get_mamba_indices=lambda rows: rows + 1,
                mamba_pool=pools,
                req_to_token=torch.arange(64).flip(0)[None],
            ),
            token_to_kv_pool=SimpleNamespace(full_kv_pool=SimpleNamespace(kv_buffer=[self.cache])),
        )
        self.scheduler = SimpleNamespace(tp_worker=SimpleNamespace(model_runner=runner))
        self.batch = SimpleNamespace(
            req_pool_indices=torch.tensor([0]),
            seq_lens=torch.tensor([PROMPT]),
            forward_mode=SimpleNamespace(is_idle=lambda: False),
        )

    def said(self, token: int, position: int) -> int:
        return (after(token, position) + (position == self.wrong_at)) % VOCABULARY

    def put(self, tokens: list[int], first: int) -> None:
        for n, token in enumerate(tokens):
            self.cache[63 - first - n] = token
            self.state[0, 1] += token

    def generate(self, tokens: int, speculates: bool = True) -> list[int]:
        self.replay.request(self.batch)
        self.state.zero_()
        self.put([9] * PROMPT, 0)
        ids = [self.sampled(self.said(9, PROMPT - 1))]
        length = PROMPT
        while len(ids) < tokens + 4:  # it runs ahead of the end
            if not speculates:
                self.put(ids[-1:], length)
                ids.append(self.sampled(self.said(ids[-1], length)))
                length += 1
                continue
            self.batch.seq_lens = torch.tensor([length])
            drafts = self.replay.draft(
                lambda *a: a[4], self.batch, None, None, None, torch.full((1, DRAFTS), 96)
            )
            row = [ids[-1], *drafts[0].tolist()]
            self.replay.sample_verified(
                lambda *a: None, None, self.batch, self.logits([0] * (DRAFTS + 1))
            )
            predicted = torch.tensor([[self.said(t, length + n) for n, t in enumerate(row)]])
            taken, given = self.replay.verify(self.accept, row=row, target_predict=predicted)[2:]
            self.put(row[: int(taken) + 1], length)
            ids += given[: int(taken) + 1]
            length += int(taken) + 1
        return ids

    def logits(self, tokens: list[int]) -> Any:
        return SimpleNamespace(next_token_logits=torch.eye(VOCABULARY)[tokens])

    def sampled(self, token: int) -> int:
        made = self.replay.sample(lambda *_: torch.tensor([token]), None, self.logits([token]))
        return int(made)

    @staticmethod
    def accept(row: list[int], target_predict: Any) -> tuple[Any, Any, Any, list[int]]:
        said = target_predict[0].tolist()
        right = [a == b for a, b in zip(row[1:], said, strict=False)]
        taken = right.index(False) if False in right else len(right)
        return None, None, torch.tensor([taken]), said


def greedy(count: int) -> list[int]:
    """By hand: each token from the one before."""
    tokens, made = 9, []
    for n in range(count):
        tokens = after(tokens, PROMPT - 1 + n)
        made.append(tokens)
    return made


class Gated(GatedSGLang):
    """With the toy's engines in place of SGLang's."""

    def __init__(self, folder: Path, wrong_at: int = -1) -> None:
        super().__init__(as_shipped=False)
        self.folder = folder
        self.toy = Engine(Replay(folder), wrong_at)

    def _plainly(self) -> Any:
        return self

    def _speculating(self) -> Any:
        return self

    def _replayed(self, tokens: int, **order: Any) -> dict[str, Any]:
        self.toy.replay.begin(self.toy.scheduler, name="x", prompt=PROMPT, **order)
        ids = self.toy.generate(tokens, speculates=bool(order["right"]))
        self.toy.replay.end(0)
        with np.load(self.folder / "x-0.npz") as arrays:
            return {k: arrays[k] for k in arrays.files} | {"first": np.int64(ids[0])}


def test_without_speculation_the_sequence_its_logits_and_its_state(tmp_path: Path) -> None:
    made = Gated(tmp_path).plain(8)
    assert made.tokens.tolist() == greedy(8)
    assert made.logits.argmax(-1).tolist() == greedy(8)
    # Position 0 is the prompt's last token: after 8 positions 7 tokens came after the prompt.
    assert made.state["length"].tolist() == [8]
    assert made.state["KDA states"].sum() == 4 * 9 + sum(greedy(7))
    assert made.state["MLA cache 0"].reshape(-1).tolist() == [9, 9, 9, 9, *greedy(7)]


def test_a_model_without_linear_layers_has_its_keys_and_values(tmp_path: Path) -> None:
    gated = Gated(tmp_path)
    runner = gated.toy.scheduler.tp_worker.model_runner
    del runner.req_to_token_pool.mamba_pool
    cache = gated.toy.cache
    runner.token_to_kv_pool = SimpleNamespace(k_buffer=[cache], v_buffer=[2 * cache, cache])
    state = gated.plain(8).state
    assert sorted(state) == ["keys of layer 0", "length", "values of layer 0", "values of layer 1"]
    assert state["keys of layer 0"].reshape(-1).tolist() == [9, 9, 9, 9, *greedy(7)]


def test_a_state_that_cannot_be_read_is_said_and_the_engine_goes_on(tmp_path: Path) -> None:
    gated = Gated(tmp_path)
    del gated.toy.scheduler.tp_worker.model_runner.token_to_kv_pool.full_kv_pool.kv_buffer
    for run in (lambda: gated.plain(8), lambda: gated.replay(Drafts(tuple(greedy(40)), (1,)), 9)):
        with pytest.raises(
            RuntimeError, match=r"the state of this model cannot be read: .*k_buffer"
        ):
            run()
    assert gated.toy.generate(8)[:8] == greedy(8)  # nothing is on any more


def test_along_other_tokens_it_goes_on_from_them(tmp_path: Path) -> None:
    made = Gated(tmp_path).plain(3, along=[50, 60, 70])
    assert made.tokens.tolist() == [
        after(9, PROMPT - 1),
        after(50, PROMPT),
        after(60, PROMPT + 1),
    ]
    assert made.state["MLA cache 0"].reshape(-1).tolist() == [9, 9, 9, 9, 50, 60]


def test_replayed_drafts_are_right_up_to_the_planted_error(tmp_path: Path) -> None:
    known, right = tuple(greedy(40)), (0, 5, 2, 1, 4, 3)
    made = Gated(tmp_path).replay(Drafts(known, right, seed=3), 20)
    # 1 from the prompt, then 1 + 6 + 3 + 2 + 5 = 17 are 18; the last step gives 4 more.
    assert made.accepted.tolist() == [0, 5, 2, 1, 4, 3]
    assert made.tokens.tolist() == list(known[:22])
    # Of 22 given out the last is not in the caches, and position 0 was in the prompt.
    assert made.state["length"].tolist() == [22]
    assert made.state["MLA cache 0"].reshape(-1).tolist() == [9, 9, 9, 9, *known[:21]]


def test_forced_it_goes_on_from_the_sequence_whatever_was_said(tmp_path: Path) -> None:
    known = tuple(greedy(40))
    wrong = PROMPT + 6  # what follows output 6, which is output 7
    made = Gated(tmp_path, wrong).replay(Drafts(known, (5, 1), forced=True), 12)
    assert made.accepted.tolist() == [5, 1, 5]
    said = list(known[:15])
    said[7] = (said[7] + 1) % VOCABULARY
    assert made.tokens.tolist() == said
    free = Gated(tmp_path, wrong).replay(Drafts(known, (5, 1)), 12)
    assert free.tokens.tolist()[:8] == said[:8]
    assert free.accepted.tolist() != [5, 1, 5]


def test_positions_in_windows_are_those_alone(tmp_path: Path) -> None:
    along = greedy(15)
    alone = Gated(tmp_path).plain(15, along=along)
    windows = Gated(tmp_path).plain(15, along=along, rows=6)
    assert windows.state["length"].tolist() == [15]
    for name, value in alone.state.items():
        assert np.array_equal(windows.state[name], value), name
    assert len(windows.logits) == 15
