"""What CUPTI records of a loop whose counts are known. Needs a CUDA device."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import bubblescope
from bubblescope.capture.cupti import CuptiBackend
from bubblescope.diagnose.model import Part
from bubblescope.errors import BubblescopeError
from bubblescope.ingest import load
from bubblescope.timeline import bscope
from tests import gpu_loop
from tests.gpu_loop import NODES


def _no_device() -> str:
    if importlib.util.find_spec("torch") is None:
        return "torch is not installed"
    return "" if gpu_loop.torch().cuda.is_available() else "no CUDA device"


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(_no_device()), reason=_no_device())]
STEPS = 10


def record(level, step=20, prepare_first=True, backend=None):
    backend = backend or CuptiBackend(level)
    if not prepare_first:
        work = gpu_loop.loop()
    with bubblescope.trace(step=step, steps=STEPS, backend=backend) as t:
        if prepare_first:
            work = gpu_loop.loop()
        while not t.done:
            work()
            t.step()
    return t


def counts(timeline, number=None):
    """Operations of each kind and calls of each name, over the marked steps."""
    begin = timeline.steps.start.min()
    calls = timeline.host_calls.take(timeline.host_calls.start >= begin)
    launched = set(calls.correlation.tolist())
    ops = timeline.device_ops
    mine = [c in launched for c in ops.correlation.tolist()]
    kinds: dict[str, int] = {}
    for kind, ok in zip(ops.kind.to_list(), mine, strict=True):
        kinds[kind] = kinds.get(kind, 0) + ok
    names: dict[str, int] = {}
    for name in calls.name.to_list():
        names[name] = names.get(name, 0) + 1
    return {k: n for k, n in kinds.items() if n}, names


def health(timeline):
    return dict(zip(timeline.health.kind.to_list(), timeline.health.count.tolist(), strict=True))


def show(label, t):
    d = t.diagnosis
    kinds, names = counts(t.timeline)
    step = d.steps.median(d.steps.length_ns)
    print(
        f"\n{label}: ops {kinds} calls {names} step {step} busy {d.total('busy_ns')} "
        f"window {d.total('window_ns')} unknown {d.total('unknown_ns')} "
        f"parts { {p.label: n for p, n in d.parts_ns().items() if n} } clocks {d.clocks} "
        f"health {health(t.timeline)} warnings {d.warnings} level {d.level} "
        f"reads {[(r.name, r.site, r.calls, r.blocked_ns_per_step) for r in d.reads]}"
    )


def test_graph_level_counts_every_launch_and_knows_every_nanosecond():
    t = record("graph")
    show("graph", t)
    kinds, names = counts(t.timeline)
    assert kinds == {"graph": STEPS, "kernel": 2 * STEPS, "memcpy": STEPS}
    assert names["cudaGraphLaunch"] == STEPS
    assert names["cudaLaunchKernel"] == 2 * STEPS
    assert names["cudaMemcpyAsync"] == STEPS
    assert names["cudaStreamSynchronize"] == STEPS
    d = t.diagnosis
    assert d.total("unknown_ns") == 0
    assert d.steps.number.tolist() == list(range(20, 20 + STEPS))
    assert d.steps.whole.all()
    assert d.level == "graph"
    assert not set(health(t.timeline)) & {"dropped record", "unfinished operation"}
    assert "NVIDIA" in t.timeline.meta.devices[0].name


def test_node_level_records_every_node_even_of_graphs_captured_before():
    t = record("node", prepare_first=False)
    show("node", t)
    kinds, _ = counts(t.timeline)
    assert kinds == {"kernel": (NODES + 2) * STEPS, "memcpy": STEPS}
    assert t.diagnosis.total("unknown_ns") == 0
    assert t.diagnosis.level == "node"
    nodes = t.timeline.device_ops
    assert len(set(nodes.node[nodes.graph >= 0].tolist())) == NODES
    assert not any(name.startswith("_Z") for name in nodes.name.values)


def test_a_graph_captured_before_is_said_to_be_invisible_and_its_time_unknown():
    t = record("graph", prepare_first=False)
    show("captured before", t)
    kinds, names = counts(t.timeline)
    assert kinds == {"kernel": 2 * STEPS, "memcpy": STEPS}
    assert names["cudaGraphLaunch"] == STEPS
    assert health(t.timeline)["graph captured earlier"] >= STEPS
    assert t.diagnosis.total("unknown_ns") > 0


def test_the_line_of_the_blocking_read_is_named():
    t = record("graph")
    (read, *_) = t.diagnosis.reads
    assert read.site is not None
    assert Path(read.site.file).name == "gpu_loop.py"
    assert read.site.line == gpu_loop.READ_LINE
    assert read.calls == STEPS


def test_dropped_records_are_counted_and_make_time_unknown():
    t = record("node", backend=CuptiBackend("node", buffer_bytes=8 << 10, limit=600))
    show("dropped", t)
    assert health(t.timeline)["dropped record"] > 0
    assert health(t.timeline)["buffer callback"] > 0


def test_only_one_may_hold_cupti_and_the_other_is_told():
    first = CuptiBackend("graph")
    first.prepare()
    with pytest.raises(BubblescopeError, match="in use in this process") as told:
        CuptiBackend("graph").prepare()
    print("\nheld:", told.value)
    first.abandon()
    again = CuptiBackend("graph")
    again.prepare()
    again.abandon()


def test_nvtx_ranges_event_waits_and_a_decorator(tmp_path):
    path = tmp_path / "deco.bscope"
    program = Path(__file__).with_name("gpu_nvtx.py")
    root = str(program.parents[1])
    env = os.environ | {"PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, program, path], check=True, timeout=120, env=env)
    timeline = load(path)
    print("\nmeta", timeline.meta)
    assert "my step" in timeline.ranges.name.values
    print("ranges", set(timeline.ranges.name.to_list()), "sync", timeline.host_calls.sync.to_list())
    waits = timeline.host_calls.sync.where(lambda s: s in ("stream wait", "event"))
    assert waits.sum() >= 8
    inside = waits & (timeline.host_calls.start >= timeline.steps.start.min())
    assert (timeline.host_calls.event_record[inside] >= 0).all()
    assert (timeline.host_calls.event_stream[inside] >= 0).all()


def test_torch_profiler_is_the_fallback_and_says_what_is_lost(tmp_path):
    code = (
        "import bubblescope, json\n"
        "from bubblescope.capture.torch_profiler import TorchProfilerBackend\n"
        "from tests import gpu_loop\n"
        "w = gpu_loop.loop()\n"
        "t = bubblescope.trace(step=5, steps=5, backend=TorchProfilerBackend())\n"
        "t.__enter__()\n"
        "while not t.done:\n"
        "    w(); t.step()\n"
        "d = t.diagnosis\n"
        "print(json.dumps([d.steps.number.tolist(), d.total('unknown_ns'), d.meta.capture,\n"
        "  len(t.timeline.device_ops), [h.note for h in d.health], d.total('window_ns')]))\n"
        "from bubblescope.capture.cupti import CuptiBackend\n"
        "try: CuptiBackend('graph').prepare()\n"
        "except Exception as e: print('HELD', e)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    print("\n", done.stdout, done.stderr[-2000:])
    first, *rest = done.stdout.splitlines()
    numbers, unknown, capture, *_ = json.loads(first)
    assert numbers == list(range(5, 10))
    assert unknown == 0
    assert capture == "torch.profiler"
    assert rest[0].startswith("HELD CUPTI is in use")


def test_a_saved_recording_reads_back(tmp_path):
    t = record("graph")
    t.save(tmp_path / "a.bscope")
    assert bscope.read(tmp_path / "a.bscope") == t.timeline
    assert Part.READ_TAIL in t.diagnosis.parts_ns()


def test_recording_again_in_the_same_process_still_sees_graphs_captured_meanwhile():
    record("graph")
    t = record("graph")
    kinds, _ = counts(t.timeline)
    assert kinds["graph"] == STEPS
    assert t.diagnosis.total("unknown_ns") == 0
