"""No recording that hypothesis can think of breaks the sums, and all agree with the oracle."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from bubblescope.diagnose import diagnose
from bubblescope.diagnose.model import Diagnosis, Part
from bubblescope.timeline import Timeline
from tests.agreement import said, true
from tests.oracle import HOST_LATE, solve, steps
from tests.strategies import nonsense, recordings

same_every_time = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def assert_sums(d: Diagnosis) -> None:
    """What must hold of any diagnosis, whatever the recording."""
    late = 0
    for device in d.devices:
        assert device.busy_ns + sum(device.parts_ns.values()) == device.window_ns
        assert device.idle_ns + device.unknown_ns + device.busy_ns == device.window_ns
        assert min(device.busy_ns, device.overlapped_ns, *device.parts_ns.values()) >= 0
        assert device.opaque_ns <= device.busy_ns
        assert_tiled(device.bubbles, device.pieces)
        for part in Part:
            mask = device.pieces.part == part
            total = (device.pieces.end - device.pieces.start)[mask].sum()
            assert total == device.parts_ns[part]
        late += sum(device.parts_ns[part] for part in HOST_LATE)
    assert sum(r.exposed_idle_ns for r in d.reads) <= late
    for r in d.reads:
        assert 0 <= r.exposed_idle_ns <= r.blocked_ns
        assert 0 <= r.waited <= r.calls


def assert_tiled(bubbles, pieces) -> None:
    """Bubbles are apart and in order; pieces lead without a seam from start to end of each."""
    assert (bubbles.start < bubbles.end).all()
    assert (bubbles.end[:-1] <= bubbles.start[1:]).all()
    reached = {}
    for i, start, end in zip(pieces.bubble, pieces.start, pieces.end, strict=True):
        assert start == reached.get(i, bubbles.start[i])
        assert start < end
        reached[i] = end
    assert reached == dict(enumerate(bubbles.end))


@given(recordings())
@same_every_time
def test_what_machines_could_do(timeline: Timeline):
    d = diagnose(timeline)
    assert_sums(d)
    assert said(d) == true(solve(timeline))


@given(nonsense())
@same_every_time
def test_what_no_machine_would_do(timeline: Timeline):
    d = diagnose(timeline)
    assert_sums(d)
    assert said(d) == true(solve(timeline))


@given(recordings(marked=True))
@settings(same_every_time, max_examples=150)
def test_steps_add_up_to_the_window(timeline: Timeline):
    d = diagnose(timeline, marker="mark")
    truth = solve(timeline)
    marks = [
        (r.rank, r.process, r.start)
        for r in sorted(truth.ranges, key=lambda r: (r.rank, r.process, r.start))
        if (r.kind, r.name) == ("annotation", "mark")
    ]
    for device, true_device in zip(d.devices, truth.devices, strict=True):
        table = device.steps
        if len(table.start):
            assert table.start[0] == device.start
            assert table.end[-1] == device.end
            assert (table.end[:-1] == table.start[1:]).all()
            assert table.busy_ns.sum() == device.busy_ns
            for part in Part:
                assert table.parts_ns[:, part].sum() == device.parts_ns[part]
        bounds = list(zip(table.start.tolist(), table.end.tolist(), strict=True))
        expected = steps(true_device, marks)
        alone = len({o.process for o in true_device.ops}) == 1
        if expected and alone:  # what two processes' marks mean on one device is anyone's guess
            assert [(s, e) for s, e in bounds if s < e] == [(s, e) for s, e in expected if s < e]
