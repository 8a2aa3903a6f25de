"""Findings meet the passes that address them only in the command line, through the registry."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bubblescope.cli import cli
from optimizations import passes_for, registry
from optimizations.registry import Addresses, PassEntry

RECORDING = Path(__file__).parents[1] / "traces/ling3-h200-seqlen-sync.bscope"

KEEP_LENGTHS = PassEntry(
    "keep-lengths",
    "Keeps sequence lengths on the device.",
    (Addresses("blocking read", r"^cudaStreamSynchronize$"),),
)
ANY_READ = PassEntry("any-read", "Helps with any read.", (Addresses("blocking read"),))
GAPS = PassEntry(
    "glue", "Puts host work into a graph.", (Addresses("host gap"), Addresses("launch call"))
)
OTHER_CALL = PassEntry("events", "Events only.", (Addresses("blocking read", "cudaEvent"),))


def printed(*options: str) -> str:
    result = CliRunner().invoke(cli, ["diagnose", str(RECORDING), *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def findings() -> list[dict[str, Any]]:
    return json.loads(printed("--json"))["findings"]


def of_read(text: str) -> str:
    """What the text report says of the read that the recording is known for, on one line."""
    entries = re.split(r"\n(?= {2}[\d·…] )", text.partition("\nFindings")[2])
    (entry,) = [e for e in entries if "cudaStreamSynchronize" in e]
    return " ".join(entry.split())


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[PassEntry]:
    """The registry, empty for the length of a test."""
    listed: list[PassEntry] = []
    monkeypatch.setattr(registry, "PASSES", listed)
    return listed


def test_a_registered_pass_is_in_both_reports(passes: list[PassEntry]) -> None:
    passes.append(KEEP_LENGTHS)
    for finding in findings():
        addressed = finding["kind"] == "blocking read"
        assert finding["passes"] == (["keep-lengths"] if addressed else [])
    text = printed()
    assert of_read(text).endswith("pass: keep-lengths")
    assert text.count("keep-lengths") == 1


def test_all_that_fit_in_the_registry_s_order(passes: list[PassEntry]) -> None:
    passes += [ANY_READ, OTHER_CALL, KEEP_LENGTHS]
    (read,) = [f for f in findings() if f["kind"] == "blocking read"]
    assert read["passes"] == ["any-read", "keep-lengths"]
    assert of_read(printed()).endswith("passes: any-read, keep-lengths")


def test_a_pass_may_address_several_kinds(passes: list[PassEntry]) -> None:
    passes.append(GAPS)
    by_kind = {f["kind"]: f["passes"] for f in findings()}
    assert by_kind["host gap"] == by_kind["launch call"] == ["glue"]
    assert by_kind["blocking read"] == []


def test_without_a_pass_the_report_says_so(passes: list[PassEntry]) -> None:
    assert all(f["passes"] == [] for f in findings())
    assert of_read(printed()).endswith("no pass addresses this yet")


def test_which_findings_a_pass_addresses(passes: list[PassEntry]) -> None:
    passes.append(KEEP_LENGTHS)
    assert passes_for("blocking read", "cudaStreamSynchronize") == ("keep-lengths",)
    assert passes_for("blocking read", "cudaEventSynchronize") == ()
    assert passes_for("host gap", "cudaStreamSynchronize") == ()
    assert passes_for("host gap", "") == ()
