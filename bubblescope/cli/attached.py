"""`bubblescope trace --attach URL`: a window of a server that runs already."""

from __future__ import annotations

import click
from click.core import ParameterSource

from bubblescope import progress
from bubblescope.cli.output import Output
from bubblescope.diagnose import diagnose
from bubblescope.errors import BubblescopeError
from bubblescope.targets.sglang import attach
from bubblescope.targets.sglang.server import Server

_OURS = ("target", "attach", "api_key", "no_request", "step", "steps")
_SHOWN = ("as_json", "top", "launches", "output", "html", "force")


def trace(
    url: str,
    key: str | None,
    target: str | None,
    no_request: bool,
    first: int,
    steps: int,
    to: Output,
) -> None:
    """Record decode steps of the server at a URL, and say where each one's time went.

    Raises:
        BubblescopeError: an option that is not for a server, or it cannot be recorded.
    """
    _check(target, no_request)
    server = Server(url, key)
    with progress.bar() as show:
        timeline = attach.record(server, first, steps, not no_request, show)
        diagnosis = diagnose(timeline, progress=show)
    to.keep(timeline, lambda out: out.show(diagnosis, timeline))


def refuse_without_url() -> None:
    """Refuse options that only a server takes.

    Raises:
        BubblescopeError: one was given.
    """
    for name, option in (("no_request", "--no-request"), ("api_key", "--api-key")):
        if _given(name):
            raise BubblescopeError(f"{option} is for --attach URL")


def _given(name: str) -> bool:
    context = click.get_current_context()
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _check(target: str | None, no_request: bool) -> None:
    """Refuse what would change nothing."""
    if target not in (None, "sglang"):
        raise BubblescopeError(f"--attach is for SGLang's server, not for target {target}")
    command = click.get_current_context().command
    for name, option in [(p.name or "", p.opts[-1]) for p in command.params]:
        if _given(name) and name not in (*_OURS, *_SHOWN):
            raise BubblescopeError(f"{option} is not for a server that runs already")
    if no_request and _given("step"):
        raise BubblescopeError("--step counts a request of ours; leave it out, or --no-request")
