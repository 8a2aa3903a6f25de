"""Nsight Systems reports (.nsys-rep, .qdrep): exported to SQLite by `nsys` itself."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import msgspec

from bubblescope.ingest import nsys
from bubblescope.ingest.format import Format, Progress
from bubblescope.ingest.source import Source, refusal
from bubblescope.timeline import Timeline

_MAGIC = b"NVIDIA Tegra Profiler Report"
# The head goes on with the version that wrote it: " 2025@5@1@121-255136380782v0".
_VERSION = re.compile(rb"^ (20[0-9]{2})@([0-9]+)@([0-9]+)")
_EXPORT = ("export", "--type", "sqlite", "--force-overwrite", "true", "--output")


def _matches(head: bytes) -> bool:
    return head.startswith(_MAGIC)


def _read(source: Source, progress: Progress) -> Timeline:
    program = shutil.which("nsys")
    if program is None:
        raise refusal(
            source.path,
            f"is an Nsight Systems report{_version(source.head)}, and nsys, which reads it, is not "
            "on the PATH",
            f"where it is, run: {_command(source.path)}; then diagnose that file",
        )
    progress("nsys export", 0.0)
    with tempfile.TemporaryDirectory(prefix="bubblescope-") as folder:
        exported = Path(folder) / "export.sqlite"
        words = [program, *_EXPORT, str(exported), str(source.path.absolute())]
        ended = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, check=False)
        if ended.returncode or not exported.is_file():
            said = (ended.stderr or ended.stdout).decode("utf-8", "replace").split("\n")
            why = next((line.strip() for line in reversed(said) if line.strip()), "it said nothing")
            raise refusal(
                source.path,
                f"nsys could not export it{_version(source.head)}: {why}",
                f"run {_command(source.path)} with a newer nsys, and diagnose that file",
            )
        progress("nsys export", 1.0)
        timeline = nsys.FORMAT.read(Source.open(exported, strict=source.strict), progress)
    meta = msgspec.structs.replace(timeline.meta, source=source.path.name)
    return Timeline.of(meta, **timeline.tables())


def _command(path: Path) -> str:
    target = path.with_suffix(".sqlite")
    return shlex.join(["nsys", "export", "--type", "sqlite", "--output", str(target), str(path)])


def _version(head: bytes) -> str:
    found = _VERSION.match(head.removeprefix(_MAGIC))
    return f" of version {b'.'.join(found.groups()).decode()}" if found else ""


FORMAT = Format("Nsight Systems report", _matches, _read)
