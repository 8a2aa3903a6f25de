"""An ablation with figures that are easy to follow: a pass that helps, and one that is noise."""

from __future__ import annotations

from typing import Any

from bubblescope.report.ablation_files import AblationJson, ChangeJson, PlanJson, RowJson

US = 1_000


def _row(label: str, step: int, interval: tuple[int, int], **more: Any) -> RowJson:
    known = {
        "passes": [],
        "starts": 3,
        "rounds": 15,
        "throttled": None,
        "p99_ns": 95 * US,
        "tokens_per_step": 2.0,
        "tpot_ns": step // 2,
        "tpot_interval_ns": None,
        "tokens_per_s": round(2e9 / step, 1),
        "change": None,
        "predicted_ns": None,
        "recorded_step_ns": None,
        "idle_ns": None,
        "reads": None,
        "launches": None,
        "floor_share": 25 * US / step,
        "gate": "",
        "gates": [],
    }
    return RowJson(label=label, step_ns=step, interval_ns=interval, **(known | more))


def _change(against: str, change: float, interval: tuple[float, float], **more: Any) -> ChangeJson:
    known = {"noise": 0.01, "verdict": "faster", "predicted": None, "why_not": ""}
    return ChangeJson(against=against, change=change, interval=interval, **(known | more))


def ablation() -> AblationJson:
    """Steps of 100, 80 and 79.8 us; the first pass was predicted to make it 79."""
    return AblationJson(
        version=1,
        target="toy",
        about={"model": "a toy", "acceptance": "simulated acceptance"},
        versions={},
        plan=PlanJson("cumulative", 3, 5, 200, 20, 1),
        parts=1,
        compared="step",
        floor_ns=25 * US,
        rows=[
            _row(
                "none",
                100 * US,
                (98 * US, 102 * US),
                p99_ns=130 * US,
                idle_ns=40 * US,
                reads=1.0,
                launches=1.0,
            ),
            _row(
                "+ <b>keep</b>",
                80 * US,
                (79 * US, 81 * US),
                idle_ns=20 * US,
                reads=0.0,
                launches=1.0,
                gate="passed",
                predicted_ns=79 * US,
                change=_change("none", -0.2, (-0.22, -0.18), predicted=-0.21),
            ),
            _row(
                "+ other",
                79_800,
                (78_900, 81_200),
                gate="not tested",
                change=_change(
                    "+ <b>keep</b>",
                    -0.0025,
                    (-0.011, 0.009),
                    verdict="noise",
                    why_not="not recorded",
                ),
            ),
        ],
        total=_change("none", -0.202, (-0.22, -0.181)),
        notes=["a note with <i>no</i> tags"],
    )
