"""From what is asked for to samples that are still to be filled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from bubblescope.ablate.plan import Passes, Plan, groups, rungs
from bubblescope.ablate.samples import VERSION, Samples, load
from bubblescope.errors import BubblescopeError
from bubblescope.targets import registry as targets


def begin(
    target: str,
    options: Mapping[str, Any],
    passes: Sequence[Passes] | None,
    ladder: str,
    shape: Mapping[str, int | None],
) -> Samples:
    """An ablation that nothing is measured of yet.

    Args:
        target: name of it.
        options: of the target.
        passes: groups of passes in order; where None, every listed pass that can be put on the
            target. Those that cannot are in `left_out`.
        ladder: as `plan.rungs` takes it.
        shape: `starts`, `rounds` and `steps`; None for the default.

    Raises:
        BubblescopeError: no such target, pass or ladder, or a pass not made for the target.
    """
    from optimizations import registry

    if target not in targets.names():
        raise BubblescopeError(f"no target {target!r}; there are: {', '.join(targets.names())}")
    left_out: dict[str, str] = {}
    if passes is None:
        fitting, left_out = _fitting(targets.get(target, **options))
        passes = [(name,) for name in fitting]
        if not passes:
            reason = next(iter(left_out.values()), "none is made for it")
            raise BubblescopeError(f"no pass to measure on target {target}: {reason}")
    entries = [registry.get(name) for group in passes for name in group]
    for entry in entries:
        registry.check(entry, target)
    chosen = rungs(passes, ladder)
    live = [entry.name for entry in entries if entry.live]
    given = {name: value for name, value in shape.items() if value is not None}
    plan = Plan(ladder, chosen, groups(chosen, live), **given)
    return Samples(VERSION, target, dict(options), plan, left_out=left_out)


def _fitting(target: Any) -> tuple[list[str], dict[str, str]]:
    """Passes that can be put on a target that is not started, and why the others cannot.

    What another pass is made of is not measured beside it.
    """
    from optimizations import registry

    listed = [p for p in registry.PASSES if target.name in p.targets]
    within = {part for p in listed for part in p.parts}
    fitting, left_out = [], {}
    for entry in listed:
        if entry.name in within:
            continue
        try:
            with registry.applied([entry.name], target):
                fitting.append(entry.name)
        except BubblescopeError as error:
            left_out[entry.name] = str(error)
    return fitting, left_out


def go_on(
    path: Path,
    target: str | None,
    options: Mapping[str, Any],
    passes: Sequence[Passes] | None,
    ladder: str | None,
    shape: Mapping[str, int | None],
) -> Samples:
    """The ablation in a file. What is given must be what was planned; starts may be added.

    Raises:
        BubblescopeError: the file cannot be read, or holds another plan.
    """
    found = load(path)
    if target is not None and target != found.target:
        raise _other(path, "--target", found.target, target)
    for name, value in options.items():
        if found.options.get(name) != value:
            then = found.options.get(name, "not given")
            raise _other(path, f"--{name.replace('_', '-')}", then, value)
    if ladder is not None and ladder != found.plan.ladder:
        raise _other(path, "--ladder", found.plan.ladder, ladder)
    if passes is not None and rungs(passes, found.plan.ladder) != found.plan.rungs:
        planned = ", ".join(rung.label for rung in found.plan.rungs)
        raise BubblescopeError(
            f"{path}: was planned with other --passes ({planned}); leave them out, or begin anew "
            "with --out"
        )
    for name in ("rounds", "steps"):
        value = shape.get(name)
        if value is not None and value != getattr(found.plan, name):
            raise _other(path, f"--{name}", getattr(found.plan, name), value)
    starts = shape.get("starts") or found.plan.starts
    if starts < found.plan.starts:
        raise BubblescopeError(
            f"{path}: was planned with {found.plan.starts} starts; --starts can add to them only"
        )
    return msgspec.structs.replace(found, plan=replace(found.plan, starts=starts))


def _other(path: Path, option: str, then: object, now: object) -> BubblescopeError:
    return BubblescopeError(
        f"{path}: was planned with {option} {then}, not {now}; leave it out, or begin anew with "
        "--out"
    )
