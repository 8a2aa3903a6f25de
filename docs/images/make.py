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
from bubblescope.report import terminal

HERE = Path(__file__).parent
RECORDING = HERE.parents[1] / "traces" / "ling3-h200-seqlen-sync.bscope"


def main() -> None:
    """Write diagnose.svg beside this file."""
    console = Console(
        record=True, width=100, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    terminal.render(diagnose(load(RECORDING)), {}, console, top=4)
    svg = console.export_svg(title="bubblescope diagnose traces/ling3-h200-seqlen-sync.bscope")
    # The picture must not fetch fonts from anywhere.
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    (HERE / "diagnose.svg").write_text(svg + "\n")


if __name__ == "__main__":
    main()
