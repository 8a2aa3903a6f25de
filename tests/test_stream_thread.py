"""The CPU stream thread has a device's meaning: asynchronous, in order, and it keeps its errors."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from bubblescope.errors import BubblescopeError  # noqa: E402
from bubblescope.targets.ling.device import scope  # noqa: E402
from bubblescope.targets.ling.program import Program, unoptimised  # noqa: E402
from bubblescope.targets.ling.stream_thread import StreamThread  # noqa: E402


@pytest.fixture
def device() -> Iterator[StreamThread]:
    made = StreamThread()
    yield made
    made.close()


def test_work_runs_in_the_order_of_its_stream(device: StreamThread) -> None:
    done: list[int] = []
    for n in range(200):
        device.launch("append", lambda n=n: done.append(n))
    device.synchronize()
    assert done == list(range(200))


def test_the_host_goes_on_while_the_device_works(device: StreamThread) -> None:
    host_went_on = threading.Event()
    seen: list[bool] = []
    device.launch("waits for the host", lambda: seen.append(host_went_on.wait(10)))
    event = device.record()
    assert not seen  # the launch returned, and its work cannot end before the next line
    host_went_on.set()
    device.synchronize_event(event)
    assert seen == [True]


def test_an_event_orders_two_streams(device: StreamThread) -> None:
    other, gate = device.new_stream(), threading.Event()
    done: list[str] = []
    device.launch("first", lambda: (gate.wait(10), done.append("first")))
    event = device.record()
    device.wait(event, other)
    device.launch("second", lambda: done.append("second"), other)
    free = device.new_stream()
    device.launch("not ordered", lambda: done.append("free"), free)
    device.synchronize(free)
    assert done == ["free"]  # another stream overtakes, the waiting one does not
    gate.set()
    device.synchronize(other)
    assert done == ["free", "first", "second"]


def test_a_synchronise_waits_for_its_own_stream_only(device: StreamThread) -> None:
    other, gate = device.new_stream(), threading.Event()
    device.launch("held", gate.wait)
    device.synchronize(other)
    gate.set()
    device.synchronize()


def test_a_copy_takes_place_in_order(device: StreamThread) -> None:
    there, back = torch.zeros(3), torch.zeros(3)
    device.copy(there, torch.tensor([1.0, 2.0, 3.0]), "HtoD")
    device.launch("double", lambda: there.mul_(2))
    device.copy(back, there, "DtoH")
    device.launch("double", lambda: there.mul_(2))
    device.synchronize()
    assert back.tolist() == [2, 4, 6]


def test_a_replay_works_on_the_same_memory_each_time(device: StreamThread) -> None:
    x, total = torch.ones(4), torch.zeros(4)
    graph = device.capture("sum", lambda: total.add_(x.exp().log() * 2))
    total.zero_()
    for n in range(1, 5):
        device.launch("set", lambda n=n: x.fill_(n))
        device.replay(graph)
    device.synchronize()
    torch.testing.assert_close(total, torch.full((4,), 20.0))


def test_an_operation_that_fails_is_reported_at_the_next_call(device: StreamThread) -> None:
    device.launch("too short", lambda: torch.zeros(2).copy_(torch.zeros(3)))
    with pytest.raises(BubblescopeError, match="stream 0 of the CPU thread: an operation failed"):
        device.synchronize()
    with pytest.raises(BubblescopeError, match="an operation failed"):
        device.launch("after", lambda: None)


def test_close_finishes_and_gives_settings_back() -> None:
    before = sys.getswitchinterval(), torch.get_num_threads(), threading.active_count()
    device, done = StreamThread(), []
    device.new_stream()
    assert sys.getswitchinterval() <= before[0]
    device.launch("last", lambda: done.append(1))
    device.close()
    assert done == [1]
    assert (sys.getswitchinterval(), torch.get_num_threads(), threading.active_count()) == before


def test_a_program_gives_the_bits_that_torch_gives() -> None:
    seed = torch.Generator().manual_seed(0)
    x, w = torch.randn(6, 64, generator=seed), torch.randn(64, 64, generator=seed)
    cache, out, count = torch.zeros(32, 64), torch.zeros(6, 64), torch.zeros(1, dtype=torch.int64)

    def body() -> None:
        h = torch.nn.functional.silu(torch.rms_norm(x, (64,), eps=1e-6) @ w.t()).clamp(max=1.0)
        value, index = torch.topk(torch.sigmoid(h), 4, dim=-1)
        at = count + torch.arange(6)
        cache.index_copy_(0, at, h)
        score = torch.einsum("td,sd->ts", h, cache)
        score = score.masked_fill(torch.arange(32) > at[:, None], float("-inf")).softmax(-1)
        both = torch.cat([score @ cache, cache[index[:, 0] % 32]], -1).double().float()
        far = torch.where(value.sum(-1, keepdim=True) > 1, 1.0, 2.0)
        keep = torch.ones_like(h, dtype=torch.bool).scatter(1, index, False)
        out.copy_(both[:, :64].masked_fill(keep, 0) * far + both.repeat_interleave(2, 0)[:6, 64:])
        count.add_(2)

    program = Program(body)
    for turn in range(4):
        x.normal_(generator=seed)
        saved = cache.clone(), count.clone()
        with unoptimised():
            program.run()
        replayed = out.clone(), cache.clone(), count.clone()
        cache.copy_(saved[0])
        count.copy_(saved[1])
        body()
        assert torch.equal(replayed[0], out), turn
        assert torch.equal(replayed[1], cache)
        assert torch.equal(replayed[2], count)


def test_a_program_times_every_operation_and_names_it() -> None:
    x, out = torch.ones(8, 8), torch.zeros(8, 8)

    def body() -> None:
        with scope("outer"):
            y = x.view(4, 16).t().reshape(8, 8)  # a view and one copy
            with scope("inner"):
                y = y @ y
        out.copy_(y)

    program = Program(body)
    with unoptimised():
        times = program.run().tolist()
    assert program.names == ("outer: clone", "outer.inner: mm", "copy")
    assert len(times) == 2 * len(program.names)
    assert times == sorted(times)


def test_reading_back_while_a_graph_is_captured_is_refused() -> None:
    x = torch.ones(2)
    with pytest.raises(RuntimeError, match="reads a value back while a graph is captured"):
        Program(lambda: x.mul_(float(x.sum())))
