"""The gates on CUDA: fewer multiprocessors, delayed stages, and the same weights in fp32."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

from bubblescope.ablate.gates import Gates  # noqa: E402
from bubblescope.targets.gated import Drafts, Stress  # noqa: E402
from bubblescope.targets.ling.config import Config  # noqa: E402
from bubblescope.targets.ling.target import Ling  # noqa: E402
from optimizations import registry  # noqa: E402
from tests import gate_passes as wrong  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture(scope="module")
def gates() -> Gates:
    return Gates(lambda: Ling("cuda", config=Config.tiny()), delay_ns=30_000_000)


@pytest.fixture(autouse=True)
def _injected(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        wrong.DropsAToken("drops-a-token"),
        wrong.KeepsARejectedToken("keeps-a-rejected-token"),
        wrong.WaitsNotLongEnough("waits-not-long-enough", patience_s=0.015),
        wrong.RoundsTheHead("rounds-the-head"),
        wrong.RoutesElsewhere("routes-elsewhere"),
    ]
    monkeypatch.setattr(registry, "PASSES", [*registry.PASSES, *entries])


def verdicts(gates: Gates, *passes: str) -> dict[str, str]:
    results = gates.check(passes)
    for result in results:
        print(passes, result)
    return {r.gate: str(r.verdict) for r in results}


def test_seq_len_sync_passes_every_gate(gates: Gates) -> None:
    assert verdicts(gates, "seq-len-sync") == {
        "tokens": "passed",
        "state": "passed",
        "restricted SMs": "passed",
        "delayed producer": "passed",
    }


def test_wrong_passes_fail(gates: Gates) -> None:
    assert verdicts(gates, "drops-a-token")["tokens"] == "failed"
    assert verdicts(gates, "keeps-a-rejected-token")["state"] == "failed"
    assert verdicts(gates, "routes-elsewhere")["flips"] == "failed"


def test_a_race_shows_only_where_the_producer_is_delayed(gates: Gates) -> None:
    said = verdicts(gates, "waits-not-long-enough")
    assert (said["tokens"], said["state"], said["delayed producer"]) == (
        "passed",
        "passed",
        "failed",
    )


def test_logits_rounded_to_what_they_are_flip_as_often_as_before(gates: Gates) -> None:
    flips = gates.check(["rounds-the-head"])[0]
    print(flips)
    assert flips.verdict == "passed"
    assert flips.numbers["argmax_flips"] == flips.numbers["argmax_flips_off"]
    assert flips.numbers["expert_flips"] == flips.numbers["expert_flips_off"]


def test_a_graph_captured_in_a_green_context_keeps_to_its_multiprocessors() -> None:
    triton = pytest.importorskip("triton")
    from bubblescope.targets.ling.cuda import Cuda
    from bubblescope.targets.ling.stress import RestrictedCuda
    from tests.gpu_smid import where

    places = torch.zeros(4096, dtype=torch.int32, device="cuda")
    seen = []
    for device in (Cuda(), RestrictedCuda(8)):
        graph = device.capture("where", lambda: where[(4096,)](places))
        places.zero_()
        torch.cuda.synchronize()
        device.replay(graph)
        device.synchronize()
        seen.append(len(places.unique()))
        device.close()
    assert triton.__version__
    assert seen[1] == 8 < seen[0]


def test_in_fp32_the_weights_have_the_same_values() -> None:
    from bubblescope.targets.ling.loop import Loop
    from bubblescope.targets.ling.weights import Weights, Widened

    narrow, wide = (
        Loop(Config.tiny(), kind(3, "cuda", torch.bfloat16)).model for kind in (Weights, Widened)
    )
    assert torch.equal(narrow.embedding.float(), wide.embedding)
    assert torch.equal(narrow.head.float(), wide.head)
    for a, b in zip(narrow.layers, wide.layers, strict=True):
        for part in ("attention", "feed"):
            for name, value in vars(getattr(a, part)).items():
                if isinstance(value, torch.Tensor):
                    other = getattr(getattr(b, part), name)
                    assert torch.equal(value.to(other.dtype), other), name
        assert torch.equal(a.attention_norm.float(), b.attention_norm)
    assert wide.head.dtype == wide.layers[0].attention_norm.dtype == torch.float32


def test_speculation_on_cuda_gives_the_bits_of_one_token_at_a_time() -> None:
    gated = Ling("cuda", config=Config.tiny()).gated()
    known = gated.plain(120).tokens
    drafts = Drafts(tuple(known.tolist()), (0, 3, 1, 2))
    run = gated.replay(drafts, 80)
    plain = gated.plain(len(run.tokens), along=run.tokens.tolist())
    assert run.tokens.tolist() == known[: len(run.tokens)].tolist()
    assert all(np.array_equal(run.state[n], plain.state[n]) for n in plain.state)
    few = gated.replay(drafts, 80, Stress(sms=16))
    assert all(np.array_equal(run.state[n], few.state[n]) for n in run.state)
