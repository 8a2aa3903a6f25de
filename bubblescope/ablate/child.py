"""A process of an ablation: `python -m bubblescope.ablate.child`.

One job comes on standard input as a line of JSON, and messages go to standard output, one a line.
It ends when it is done, at SIGTERM, or when standard input is closed: whoever started it is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

import msgspec

from bubblescope.ablate import jobs
from bubblescope.ablate.measure import carry_out
from bubblescope.errors import BubblescopeError


def main() -> None:
    """Do the one job."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who started it
    signal.signal(signal.SIGTERM, _leave)
    # What the target prints must not come between the messages.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    job = msgspec.json.decode(sys.stdin.buffer.readline(), type=jobs.Job)
    threading.Thread(target=_watch, daemon=True).start()

    def tell(message: jobs.Message) -> None:
        out.write(msgspec.json.encode(message) + b"\n")
        out.flush()

    try:
        for message in carry_out(job):
            tell(message)
    except BubblescopeError as error:
        tell(jobs.Failed(str(error)))


def _watch() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _leave(_number: int, _frame: FrameType | None) -> None:
    """Let everything be stopped on the way out."""
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
