"""`bubblescope diagnose` in the shell: pipes, terminals, Ctrl-C, and names of any kind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e.program import (
    ENV,
    SYNC,
    command,
    decode_loop,
    event,
    listing,
    refusal,
    report,
    run,
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes, signals and names of POSIX")

# Escape codes ----------------------------------------------------------------------------------


def colours(output: bytes) -> list[bytes]:
    """The codes that set a colour, of all that set how text looks."""
    codes = [c for group in re.findall(rb"\x1b\[([0-9;]*)m", output) for c in group.split(b";")]
    return [c for c in codes if re.fullmatch(rb"(3|4|9|10)[0-8]", c)]


def on_a_terminal(path: Path, env: dict[str, str]) -> bytes:
    ours, theirs = os.openpty()
    with subprocess.Popen(command(path), stdout=theirs, stderr=theirs, env=ENV | env) as process:
        os.close(theirs)
        output = b""
        try:
            while piece := os.read(ours, 1 << 16):
                output += piece
        except OSError:  # Linux says so where the other end is closed
            pass
        os.close(ours)
    assert process.returncode == 0
    return output


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}], ids=["plain", "NO_COLOR"])
def test_no_escape_codes_in_a_pipe(env: dict[str, str], decode: Path) -> None:
    for options in ([], ["--json"]):
        done = run(decode, *options, env=env)
        assert b"\x1b" not in done.stdout + done.stderr


def test_no_colour_on_a_terminal_where_none_is_wanted(decode: Path) -> None:
    assert colours(on_a_terminal(decode, {}))  # else what follows says nothing
    assert colours(on_a_terminal(decode, {"NO_COLOR": "1"})) == []


# Pipes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_a_reader_that_leaves_early(options: list[str]) -> None:
    # The reader may have left before the first byte, or after a line of it.
    closed, end = os.pipe()
    os.close(closed)
    with subprocess.Popen(
        command(SYNC, *options), stdout=end, stderr=subprocess.PIPE, env=ENV
    ) as process:
        os.close(end)
        _, errors = process.communicate(timeout=60)
    assert errors == b""
    with subprocess.Popen(
        command(SYNC, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENV
    ) as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("options", [[], ["--json"]], ids=["text", "json"])
def test_output_to_a_full_disk(options: list[str], decode: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command(decode, *options),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
            env=ENV,
        )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert b"No space left on device" in done.stderr


# Ctrl-C ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 60 MB: a load that takes a while."""
    path = tmp_path_factory.mktemp("big") / "big.json"
    loop = json.dumps(decode_loop(30))[1:-1]
    with path.open("w") as file:
        file.write("[" + loop)
        for _ in range(60_000_000 // len(loop)):
            file.write("," + loop)
        file.write("]")
    return path


def is_open(process: subprocess.Popen[bytes], path: Path) -> bool:
    files = Path(f"/proc/{process.pid}/fd")
    try:
        return any(file.readlink() == path for file in files.iterdir())
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc to watch a process by")
@pytest.mark.parametrize("later_s", [0.0, 0.4], ids=["reading", "decoding"])
def test_ctrl_c_during_a_load(later_s: float, big: Path) -> None:
    before = sorted(p.name for p in big.parent.iterdir())
    process = subprocess.Popen(
        command(big, "-o", big.with_name("saved.bscope")),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENV,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with process:
        deadline = time.monotonic() + 30
        while not is_open(process, big):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(later_s)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert sorted(p.name for p in big.parent.iterdir()) == before
    assert b"Traceback" not in errors
    assert len(errors.splitlines()) == 1


# Names -----------------------------------------------------------------------------------------

NAMES = [
    "a\nb.json",
    "[bold]x[red].json",
    "[link=y] [].json",
    "\x1b[31mred\x07.json",
    "\u202egnp.json",
    "%s{0} é 名.json",
    os.fsdecode(b"\xff\xfe.json"),
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_an_input_of_any_name(name: str, decode: Path) -> None:
    plain = run(decode).stdout.decode()
    path = decode.rename(decode.with_name(name))
    done = run(path)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert len(text.splitlines()) == len(plain.splitlines())
    assert text.replace("\n", "").isprintable()
    if name.isprintable():
        assert text.startswith(name + "\n")
    source = report(path)["source"]
    assert source == name.encode("utf-8", "replace").decode()


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_missing_input_of_any_name(name: str, tmp_path: Path) -> None:
    message = refusal(run(tmp_path / name))
    assert "no such file" in message
    if name.isprintable():
        assert name in message


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_an_output_of_any_name(name: str, decode: Path) -> None:
    saved = decode.with_name(name.replace(".json", ".bscope"))
    done = run(decode, "-o", saved)
    assert done.returncode == 0
    assert report(saved)["window_ns"] == 560_000
    line = done.stderr.decode()
    assert line.count("\n") == 1
    assert line[:-1].isprintable()


def test_names_inside_a_recording(tmp_path: Path) -> None:
    wild = "[bold]x[/] \x1b[31m\n\u202e"
    marks = [event("user_annotation", f"{wild}{k}", 100 * k + 1, 80) for k in range(6)]
    path = tmp_path / "wild.json"
    path.write_text(json.dumps([*decode_loop(), *marks]))
    done = run(path)
    assert done.returncode == 0
    assert done.stdout.decode().replace("\n", "").isprintable()
    message = refusal(run(path, "--marker", f"{wild}nope"))
    assert "no such range" in message


def test_the_folder_is_left_as_it_was(decode: Path) -> None:
    before, status = listing(decode.parent), decode.stat()
    run(decode)
    run(decode, "--json")
    assert listing(decode.parent) == before
    after = decode.stat()
    assert (after.st_mtime_ns, after.st_mode) == (status.st_mtime_ns, status.st_mode)
