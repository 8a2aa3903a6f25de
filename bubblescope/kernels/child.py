"""A process that measures: `python -m bubblescope.kernels.child ASKED ANSWER`.

It is one of its own because one tool holds CUPTI, or ncu's injection, for a process's whole life.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bubblescope.capture.cupti import library
from bubblescope.capture.cupti.demangle import demangle
from bubblescope.errors import BubblescopeError
from bubblescope.kernels.asked import BYTES, DURATION, PEAK, Answer, Asked, Run, Sample

WARM_UP = 3
"""Steps before those that are measured, at least."""
INSTALL = "pip install 'bubblescope[gpu]'"
_METRICS = {"cupti": [DURATION], "ncu": [DURATION, BYTES, PEAK]}


def main(arguments: Sequence[str]) -> None:
    """Read what is asked, do it, write the answer."""
    asked_at, answer_at = map(Path, arguments)
    asked = msgspec.json.decode(asked_at.read_bytes(), type=Asked)
    try:
        answer = answer_to(asked)
    except BubblescopeError as error:
        answer = Answer(error=str(error))
    answer_at.write_bytes(msgspec.json.encode(answer))


def answer_to(asked: Asked) -> Answer:
    """Measure as asked.

    Raises:
        BubblescopeError: what that needs is not here, or it failed.
    """
    if asked.way == "steps":
        only_run(asked.run)
        return Answer()
    cupti = ""
    if asked.way == "cupti":
        library.load()  # before torch and nsight-python, which then share it
        cupti = library.loaded_version()
    nsight = _nsight(asked.way)
    with _started(asked.run, graphs=False) as target:
        samples = measure(nsight, target.step, asked.run.steps, _METRICS[asked.way])
    return Answer(samples=samples, nsight=str(getattr(nsight, "__version__", "")), cupti=cupti)


def only_run(run: Run) -> None:
    """Run the steps between cudaProfilerStart and cudaProfilerStop, for a tool that watches."""
    import torch

    with _started(run, graphs=True) as target:
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        for _ in range(run.steps):
            target.step()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()


def measure(
    nsight: Any, step: Callable[[], None], steps: int, metrics: Sequence[str]
) -> list[Sample]:
    """Every kernel of a step, measured over `steps` steps by `nsight.analyze.kernel`.

    Args:
        nsight: nsight-python, with a tool active.
        step: runs one step without graphs.
        steps: how many.
        metrics: to measure, as ncu names them; nsight-python's CUPTI tool has only the duration.

    Raises:
        BubblescopeError: nsight-python failed.
    """
    from bubblescope.targets.ling.annotated import annotated

    pairs: list[tuple[Any, Any]] = []

    def combined(first: Any, other: Any) -> Any:
        # It is called with the kernels of one annotation from first to last: each one's own
        # figures are had here, and only here.
        pairs.append((first, other))
        return first + other

    def decode_step() -> None:
        with annotated(nsight.annotate):
            step()

    with tempfile.TemporaryDirectory(prefix="bubblescope-") as folder:
        profiled = nsight.analyze.kernel(
            runs=steps,
            metrics=list(metrics),
            combine_kernel_metrics=combined,
            cache_control="none",
            thermal_mode="off",
            verbosity=nsight.VerbosityLevel.SILENT,
            output_prefix=os.path.join(folder, ""),  # noqa: PTH118 - a Path drops the last slash
        )
        try:
            result = profiled(decode_step)()
        except Exception as error:
            raise BubblescopeError(
                f"nsight-python failed: {_line(error)}; see `bubblescope doctor`, or leave it out "
                "with --no-nsight"
            ) from error
    return samples(result.to_dataframe().to_dict("records"), pairs, steps)


def samples(
    records: Sequence[dict[str, Any]], pairs: Sequence[tuple[Any, Any]], steps: int
) -> list[Sample]:
    """The kernels in nsight-python's table.

    Args:
        records: rows of its table: one an annotation and metric, kernels joined by "|".
        pairs: what it gave to be combined, annotation by annotation, step by step.
        steps: how many were measured.

    Raises:
        BubblescopeError: an annotation was not measured at each step.
    """
    annotations: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        annotations.setdefault(record["Annotation"], []).append(record)
    found: list[Sample] = []
    at = 0
    for name, rows in annotations.items():
        if any(int(row["NumRuns"]) != steps for row in rows):
            raise BubblescopeError(f"nsight-python: {name} was not measured at every step")
        kernels = [demangle(kernel) for kernel in rows[0]["Kernel"].split("|")]
        metrics = [str(row["Metric"]) for row in rows]
        if len(kernels) == 1:
            figures = [(row["AvgValue"], row["MinValue"], row["MaxValue"]) for row in rows]
            values = {m: _three(*f) for m, f in zip(metrics, figures, strict=True)}
            found.append(Sample(kernels[0], values))
            continue
        later = len(kernels) - 1
        mine = pairs[at : at + later * steps]
        at += later * steps
        if len(mine) < later * steps:
            raise BubblescopeError(f"nsight-python: did not give all kernels of {name}")
        each = [
            [np.atleast_1d(mine[run * later][0])]
            + [np.atleast_1d(pair[1]) for pair in mine[run * later : (run + 1) * later]]
            for run in range(steps)
        ]
        runs = np.array(each, np.float64)  # (steps, kernels, metrics)
        for k, kernel in enumerate(kernels):
            values = {
                m: _three(runs[:, k, n].mean(), runs[:, k, n].min(), runs[:, k, n].max())
                for n, m in enumerate(metrics)
            }
            found.append(Sample(kernel, values))
    return found


def _three(*values: float) -> tuple[float, float, float]:
    mean, least, greatest = map(float, values)
    return mean, least, greatest


@contextmanager
def _started(run: Run, *, graphs: bool) -> Iterator[Any]:
    """The target at the step before the first one wanted."""
    from bubblescope.targets import registry as targets
    from optimizations.registry import applied

    target = targets.get(
        "ling",
        device=run.device,
        accept_length=run.accept_length,
        layers=run.layers,
        graphs=graphs,
    )
    with applied(run.passes, target):
        target.start()
        try:
            for _ in range(max(run.step, WARM_UP)):
                target.step()
            yield target
        finally:
            target.stop()


def _nsight(way: str) -> Any:
    """nsight-python with its tool active, before anything of CUDA has begun."""
    os.environ["NSPY_NCU_INIT_AT_IMPORT"] = "0"  # the tool is chosen below
    _reach_ncu_report()
    try:
        nsight = import_module("nsight")
    except ImportError as error:
        raise BubblescopeError(
            f"nsight-python cannot be imported ({_line(error)}); {INSTALL}"
        ) from None
    try:
        nsight.activate(nsight.Tool.CUPTI if way == "cupti" else nsight.Tool.NCU)
    except Exception as error:  # each tool has its own kinds
        raise BubblescopeError(
            f"nsight-python cannot use {'CUPTI' if way == 'cupti' else 'ncu'}: {_line(error)}; "
            "it needs CUPTI 13.4 or ncu 2026.2, see `bubblescope doctor`"
        ) from None
    return nsight


def _reach_ncu_report() -> None:
    """nsight-python imports ncu_report: where it is not installed, the copy that ncu brings."""
    from bubblescope.doctor.machine import Machine
    from bubblescope.doctor.tools import probe

    for copy in probe(Machine())["ncu"]:
        for folder in Path(copy.path).resolve().parents:
            python = folder / "extras" / "python"
            if (python / "ncu_report.py").is_file():
                sys.path.append(str(python))
                return


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


if __name__ == "__main__":
    main(sys.argv[1:])
