"""Call stacks given as text in the arguments of an op, as torch.profiler writes them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bubblescope.diagnose import diagnose
from bubblescope.ingest import load
from bubblescope.ingest.kineto_stacks import sites_of
from tests.corpus import need
from tests.test_ingest_kineto import kernel, launch, read, span

# As torch 2.13 wrote it for `.item()` in `inner`, called by `outer`; the innermost comes first.
ITEM = (
    "<built-in method item of Tensor object at 0x7f1b15faee40>;serve.py(3): inner;"
    "serve.py(14): outer;serve.py(28): <module>;"
)


@pytest.mark.parametrize(
    ("stack", "site"),
    [
        (ITEM, ("serve.py", 3, "inner")),
        ("/x/torch/nn/modules/module.py(1501): _call_impl;/a/model.py(7): forward;",
         ("/a/model.py", 7, "forward")),
        ("fsdp.py(112): train;\r\nmodel.py(50): forward", ("fsdp.py", 112, "train")),
        ("torch/_ops.py(20): call;torch/utils.py(9): wrap", ("torch/_ops.py", 20, "call")),
        ("<built-in function len>;nn.Module: Qwen_0", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_site_is_the_innermost_frame_outside_the_frameworks(stack, site):
    sites: dict[tuple[str, int, str], int] = {}
    (row,) = sites_of([stack], sites).tolist()
    assert (row, list(sites)) == ((0, [site]) if site else (-1, []))


def test_stacks_of_one_place_share_a_row():
    sites = {("a.py", 1, "before"): 0}
    assert sites_of(["b.py(2): f;c.py(3): g", "a.py(1): before", "b.py(2): f"], sites).tolist() == [
        1, 0, 1,
    ]  # fmt: skip


def loop(stack: str | None) -> list[object]:
    """Six steps, t = 100 k: two kernels until t+80, read back from t+20 to t+85 under an op."""
    args = {} if stack is None else {"Call stack": stack}
    return [
        event
        for k in range(6)
        for event in (
            span("user_annotation", f"decode {k}", 100 * k, 95, **args),
            launch(100 * k + 10, 5, 3 * k),
            kernel(100 * k + 20, 60, correlation=3 * k),
            span("cpu_op", "aten::item", 100 * k + 18, 70, **args),
            span("cuda_runtime", "cudaStreamSynchronize", 100 * k + 20, 65, correlation=3 * k + 1),
        )
    ]


def test_a_read_gets_the_line_of_the_op_around_it(tmp_path: Path) -> None:
    (found,) = diagnose(read(tmp_path, loop(ITEM))).reads
    assert found.site is not None
    assert (found.site.file, found.site.line, found.site.function) == ("serve.py", 3, "inner")


@pytest.mark.parametrize("stack", [None, ""])
def test_without_a_stack_it_has_the_names_around_it(tmp_path: Path, stack: str | None) -> None:
    made = read(tmp_path, loop(stack))
    assert len(made.frames) == 0
    (found,) = diagnose(made).reads
    assert (found.site, found.within) == (None, ("decode #", "aten::item"))


def test_odd_stacks_are_left_out_and_rows_stay_in_place(tmp_path: Path) -> None:
    odd = [7, None, ["a.py(1): f"], {}, ITEM, True]
    events = [
        span("cpu_op", f"op {i}", 10 * i, 5, **{"Call stack": stack}) for i, stack in enumerate(odd)
    ]
    # Over 4096 events, so that rows are counted through several chunks.
    many = [span("cpu_op", "plain", 100 + i, 1) for i in range(5000)]
    late = span("cpu_op", "late", 9000, 5, **{"Call stack": "z.py(9): last"})
    ranges = (made := read(tmp_path, [kernel(1, 1), *events, *many, late])).ranges
    names = ranges.name.to_list()
    framed = {names[i]: int(ranges.frame[i]) for i in (ranges.frame >= 0).nonzero()[0]}
    assert framed == {"op 4": 0, "late": 1}
    assert made.frames.file.to_list() == ["serve.py", "z.py"]


def test_frames_of_stacks_and_of_python_rows_are_one_table(tmp_path: Path) -> None:
    python = span("python_function", "serve.py(3): inner", 0, 9)
    made = read(tmp_path, [kernel(1, 1), python, span("cpu_op", "x", 2, 1, **{"Call stack": ITEM})])
    assert made.ranges.frame.tolist() == [0, 0]


def test_a_file_whose_stacks_are_all_empty_has_no_frames() -> None:
    assert len(load(need("traces/hta_compare_base.json.gz")).frames) == 0


def test_stacks_of_the_torch_that_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "serve.py").write_text(
        "import torch\nfrom torch._C._profiler import _ExperimentalConfig\n"
        "from torch.profiler import ProfilerActivity, profile\n"
        "def decode(x):\n    return x.sum().item()\n"
        "verbose = _ExperimentalConfig(verbose=True)\n"
        "with profile(activities=[ProfilerActivity.CPU], with_stack=True,"
        " experimental_config=verbose) as p:\n"
        "    decode(torch.ones(3))\n"
        "p.export_chrome_trace('out.json')\n"
    )
    subprocess.run(
        [sys.executable, "serve.py"], cwd=tmp_path, check=True, capture_output=True, timeout=60
    )
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    (stack,) = {e["args"]["Call stack"] for e in events if e["name"] == "aten::item"}
    sites: dict[tuple[str, int, str], int] = {}
    assert sites_of([stack], sites).tolist() == [0]
    ((file, line, function),) = sites
    assert (Path(file).name, line, function) == ("serve.py", 4, "decode")  # where it begins
