"""Make the recordings in this folder from the profiler files that they were recorded as.

    python traces/make.py FOLDER

FOLDER holds sglang_ling3_h200_nextn_seqlen_sync.json.gz and ..._no_sync.json.gz. What the files
cannot say of themselves is added here: what ran, and its step time without a profiler.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from bubblescope.ingest import load
from bubblescope.timeline import Timeline, bscope

HERE = Path(__file__).parent
RUN = (
    "SGLang 0.5.23, Ling-3.0-flash TP4-rank slice (63 GB, no all-reduce), dummy weights, batch 1, "
    "NEXTN with 6 verify tokens, simulated acceptance 3.25"
)
RECORDINGS = {
    # name here: (file, its sequence-length read-back, step without a profiler)
    "ling3-h200-seqlen-sync": ("sglang_ling3_h200_nextn_seqlen_sync.json.gz", "on", 7_500_000),
    "ling3-h200-no-sync": ("sglang_ling3_h200_nextn_no_sync.json.gz", "off", 6_700_000),
}


def main(folder: Path) -> None:
    """Convert each file of `folder` and say what it is."""
    for name, (file, read_back, step_ns) in RECORDINGS.items():
        timeline = load(folder / file)
        meta = msgspec.structs.replace(
            timeline.meta,
            unprofiled_step_ns=step_ns,
            about={"run": f"{RUN}; sequence-length read-back {read_back}"},
        )
        told = Timeline.of(meta, **timeline.tables())
        bscope.write(told, HERE / f"{name}.bscope", force=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
