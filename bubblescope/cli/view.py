"""`bubblescope view`: recordings, comparisons and ablations as pages in the browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bubblescope import progress
from bubblescope.cli import options
from bubblescope.cli.lines import one_line
from bubblescope.errors import BubblescopeError

if TYPE_CHECKING:
    from bubblescope.report.ablation_files import AblationJson
    from bubblescope.view import Shown

Window = tuple[int | None, int | None]
_ABLATION = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"target"\s*:')
"""How the files begin that `bubblescope ablate` writes, and no recording does."""


def _rows(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, Path]:
    """ROW=FILE, each row once."""
    found: dict[str, Path] = {}
    for value in values:
        row, equals, file = value.rpartition("=")
        if not equals or not row or not file:
            raise click.BadParameter(f"{value!r} is not ROW=FILE, as in none=before.bscope")
        if row in found:
            raise click.BadParameter(f"row {row!r} is given twice")
        found[row] = Path(file)
    return found


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("other", metavar="[B]", required=False, type=click.Path(path_type=Path))
@options.window
@click.option(
    "--trace",
    "traces",
    multiple=True,
    metavar="ROW=FILE",
    callback=_rows,
    help="Of an ablation: the recording of a row; may be repeated.",
)
@options.html
@click.option("--force", is_flag=True, help="Replace FILE.html if it exists.")
@click.option("--serve", is_flag=True, help="Serve the page on this machine instead of opening it.")
@click.option("--port", type=click.IntRange(0, 65535), help="For --serve; a free one if not given.")
@click.option("--no-open", is_flag=True, help="Print where the page is, and open nothing.")
def view(
    file: Path,
    other: Path | None,
    window: Window | None,
    marker: str | None,
    traces: dict[str, Path],
    html: Path | None,
    force: bool,
    serve: bool,
    port: int | None,
    no_open: bool,
) -> None:
    """Show a recording as a timeline in the browser; two, aligned; or an ablation.

    FILE is a recording as `bubblescope diagnose` reads it; with B, both are shown one under the
    other. FILE can also be what `bubblescope ablate` wrote, with --out or --json. The page is one
    file that needs no network: --html keeps it, else it is a temporary file. Where there is no
    display, its path is printed.
    """
    from bubblescope.view import out

    if html is not None:
        if serve:
            raise BubblescopeError("--html writes a file, --serve serves the page; give one")
        out.check(html, force=force)
    if port is not None and not serve:
        raise BubblescopeError("--port is for --serve; give both, or neither")
    page = _page(file, other, window, marker, traces)
    if html is not None:
        out.save(page, html)
        click.echo(one_line(str(html)))
    elif serve:
        _serve(page, port or 0, no_open)
    else:
        path = out.keep(page)
        if no_open or not out.open_in_browser(path.as_uri()):
            click.echo(one_line(str(path)))


def _page(
    file: Path,
    other: Path | None,
    window: Window | None,
    marker: str | None,
    traces: dict[str, Path],
) -> bytes:
    from bubblescope.view import ablation_page, comparison_page, diagnosis_page

    if _is_ablation(file):
        if other is not None:
            raise BubblescopeError(f"{file}: is an ablation, which has no second file; see --trace")
        ablation = _ablation(file)
        labels = {row.label: n for n, row in enumerate(ablation.rows)}
        unknown = [name for name in traces if name not in labels]
        if unknown:
            known = ", ".join(repr(label) for label in labels)
            raise BubblescopeError(f"--trace {unknown[0]}: no such row in {file}; it has {known}")
        found = {labels[n]: _shown(path, window, marker) for n, path in traces.items()}
        return ablation_page(ablation, found)
    if traces:
        raise BubblescopeError("--trace is for an ablation; give a recording as FILE")
    if other is None:
        return diagnosis_page(_shown(file, window, marker))

    from bubblescope.cli.compare import side
    from bubblescope.cli.shown import shown
    from bubblescope.compare import compare

    with progress.bar() as show:
        a, b = (side(path, window, marker, show) for path in (file, other))
        compared = compare(a, b)
    return comparison_page(
        shown(a.timeline, a.diagnosis, str(file)),
        shown(b.timeline, b.diagnosis, str(other)),
        compared,
    )


def _shown(path: Path, window: Window | None, marker: str | None) -> Shown:
    from bubblescope.cli.shown import shown
    from bubblescope.diagnose import diagnose
    from bubblescope.ingest import load

    with progress.bar() as show:
        timeline = load(path, progress=show)
        diagnosis = diagnose(timeline, marker=marker, window=window, progress=show)
    return shown(timeline, diagnosis, str(path))


def _is_ablation(path: Path) -> bool:
    """By what it begins with; what cannot be read is left to the reader of recordings to refuse."""
    try:
        with path.open("rb") as opened:
            return _ABLATION.match(opened.read(256)) is not None
    except OSError:
        return False


def _ablation(path: Path) -> AblationJson:
    """From the JSON that was printed, or from the samples that were kept."""
    import msgspec

    from bubblescope.ablate import ablation, samples
    from bubblescope.report.ablation_files import AblationJson, to_json

    try:
        return msgspec.json.decode(path.read_bytes(), type=AblationJson)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        made = ablation.summarise(samples.load(path))
    return msgspec.json.decode(to_json(made), type=AblationJson)


def _serve(page: bytes, port: int, no_open: bool) -> None:
    """Until Ctrl-C."""
    from bubblescope.view import out
    from bubblescope.view.serve import PageServer

    with PageServer(page, port) as server:
        click.echo(server.address)
        click.echo("on this machine alone; Ctrl-C ends it", err=True)
        if not no_open:
            out.open_in_browser(server.address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            click.echo("bubblescope: stopped", err=True)
