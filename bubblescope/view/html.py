"""The page itself: one HTML file with everything in it, that asks nothing of any network.

Names from recordings reach the page only inside packed data, as digits, so that none can end a
script or open a tag; scripts put them into the page as text. The content policy lets exactly the
scripts written here run, by their hashes, and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.resources import files
from string import Template

_ASSETS = files("bubblescope.view") / "assets"
_SCRIPTS = (
    "units.js",
    "dom.js",
    "theme.js",
    "data.js",
    "search.js",
    "intervals.js",
    "recording.js",
    "tracks.js",
    "lanes.js",
    "scale.js",
    "paint.js",
    "draw.js",
    "arrows.js",
    "ruler.js",
    "timeline.js",
    "pointer.js",
    "keys.js",
    "details.js",
    "legend.js",
    "findings.js",
    "overview.js",
    "toolbar.js",
    "compare.js",
    "ablation.js",
    "main.js",
)
"""In the order in which they are put together; each may use what stands above it."""
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)


def page(title: str, head: bytes, recordings: Sequence[bytes]) -> bytes:
    """The page as UTF-8.

    Args:
        title: what the browser's tab says.
        head: JSON of what kind of page it is and what it tells, see `pages`.
        recordings: as `recording.encode` packs them.
    """
    script, plotly = _script(), _plotly()
    packed = {
        "head": digits(zlib.compress(head)),
        "plotly": _packed_plotly(),
        **{f"recording-{n}": digits(data) for n, data in enumerate(recordings)},
    }
    filled = Template((_ASSETS / "page.html").read_text("utf-8")).substitute(
        title=escape(title),
        policy=escape(
            "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
            f"script-src {_hash(script)} {_hash(plotly)}"
        ),
        style=(_ASSETS / "page.css").read_text("utf-8"),
        script=script.decode(),
        data="\n".join(
            f'<script type="text/plain" id="{name}">{text}</script>'
            for name, text in packed.items()
        ),
    )
    return filled.encode()


@cache
def _script() -> bytes:
    """All modules as one: their imports of each other go, since each stands below what it uses."""
    parts = [(_ASSETS / name).read_text("utf-8") for name in _SCRIPTS]
    return "".join(_EXPORT.sub("", _IMPORT.sub("", part)) for part in parts).encode()


@cache
def _plotly() -> bytes:
    """plotly.js as the plotly package ships it, without its Python side being imported."""
    return (files("plotly") / "package_data" / "plotly.min.js").read_bytes()


@cache
def _packed_plotly() -> str:
    return digits(zlib.compress(_plotly(), 9))


def digits(data: bytes) -> str:
    """Bytes as base 85, a sixteenth shorter than base 64; with no "<", so it can hold no tag."""
    return base64.b85encode(data).replace(b"<", b",").decode()


def _hash(script: bytes) -> str:
    digest = hashlib.sha256(script).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
