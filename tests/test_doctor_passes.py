"""`bubblescope passes`: the registry as people and programs read it."""

from __future__ import annotations

import json

import msgspec
import pytest
from click.testing import CliRunner

from bubblescope.cli import cli
from bubblescope.report.passes import PassesJson
from optimizations import registry
from optimizations.passes import Addresses, PassEntry

KEEP = PassEntry(
    "keep-lengths",
    "Keeps sequence lengths on the device.",
    (Addresses("blocking read", r"^cudaStreamSynchronize$"), Addresses("host gap")),
    targets=("ling", "sglang"),
    needs=("pdl-chain", "Hopper or later"),
    gate="256 greedy tokens equal",
)
HEADS = PassEntry("heads", "Runs heads in bf16.", (), targets=("ling",), keeps_bits=False)
TEXT = """\
keep-lengths
  Keeps sequence lengths on the device.
  targets    ling, sglang
  needs      pdl-chain, Hopper or later
  results    the same bits
  gate       256 greedy tokens equal
  addresses  blocking read (cudaStreamSynchronize); host gap

heads
  Runs heads in bf16.
  targets    ling
  needs      nothing else
  results    rounded differently
  gate       not written yet
  addresses  no finding
"""


def printed(*options: str) -> str:
    result = CliRunner().invoke(cli, ["passes", *options])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[PassEntry]:
    """The registry, empty for the length of a test."""
    listed: list[PassEntry] = []
    monkeypatch.setattr(registry, "PASSES", listed)
    return listed


def test_text(passes: list[PassEntry]) -> None:
    passes += [KEEP, HEADS]
    assert printed() == TEXT


def test_json(passes: list[PassEntry]) -> None:
    passes += [KEEP, HEADS]
    text = printed("--json")
    told = json.loads(text)
    assert told["version"] == 1
    assert told["passes"][0] == {
        "name": "keep-lengths",
        "summary": "Keeps sequence lengths on the device.",
        "targets": ["ling", "sglang"],
        "needs": ["pdl-chain", "Hopper or later"],
        "keeps_bits": True,
        "rounds_on": [],
        "parts": [],
        "gate": "256 greedy tokens equal",
        "addresses": [
            {"kind": "blocking read", "call": "^cudaStreamSynchronize$"},
            {"kind": "host gap", "call": ""},
        ],
    }
    assert [p.name for p in msgspec.json.decode(text, type=PassesJson).passes] == [
        "keep-lengths",
        "heads",
    ]


def test_none(passes: list[PassEntry]) -> None:
    assert passes == []
    assert printed() == "no passes: none is written yet\n"
    assert json.loads(printed("--json")) == {"version": 1, "passes": []}


def test_those_that_there_are() -> None:
    told = json.loads(printed("--json"))["passes"]
    assert [p["name"] for p in told] == [p.name for p in registry.PASSES]
    for entry in told:
        assert entry["summary"].endswith(".")
        assert entry["targets"]
        assert entry["gate"]
