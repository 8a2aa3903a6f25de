"""Draw the README's picture: the report of a shipped recording, as a terminal shows it.

python docs/images/make.py
"""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console

from bubblescope.diagnose import diagnose
from bubblescope.ingest import load
from bubblescope.predict.ranking import ranked
from bubblescope.report import terminal
from optimizations import passes_for

HERE = Path(__file__).parent
NAME = "traces/ling3-sglang-h200.bscope"
WINDOW = (200, 210)


def main() -> None:
    """Write diagnose.svg beside this file."""
    console = Console(
        record=True, width=100, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    timeline = load(HERE.parents[1] / NAME)
    diagnosis = ranked(timeline, diagnose(timeline, window=WINDOW))
    passes = {
        n: passes_for(f.kind, f.call, f.site.file if f.site else "")
        for n, f in enumerate(diagnosis.findings)
    }
    terminal.render(diagnosis, passes, console, top=3)
    svg = console.export_svg(title=f"bubblescope diagnose {NAME} --window 200:210")
    # The picture must not fetch fonts from anywhere.
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    (HERE / "diagnose.svg").write_text(svg + "\n")


if __name__ == "__main__":
    main()
