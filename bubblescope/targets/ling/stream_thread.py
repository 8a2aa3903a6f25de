"""A device made of CPU threads: each stream is a thread that runs queued operations in order.

Calls return at once and have CUDA's meaning, so that host and device really overlap: the host can
run ahead, a blocking read waits, and an idle stream is a bubble. Calls are named as CUDA names
them, with the prefix "cpu".
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Protocol

import torch
from torch import Tensor

from bubblescope.errors import BubblescopeError
from bubblescope.targets.ling.program import Program, unoptimised

SWITCH_S = 20e-6
"""How long a thread may keep the interpreter lock from another; Python's own default is 5 ms."""

Work = Callable[[], None]


class Recorder(Protocol):
    """Where a device puts down what it does; times on `time.monotonic_ns()`'s clock."""

    def call(
        self,
        name: str,
        begin: int,
        end: int,
        correlation: int,
        *,
        sync: str = "",
        stream: int = -1,
        event_stream: int = -1,
        event_record: int = -1,
    ) -> None:
        """A host call, by the thread that made it, at once after its end."""
        ...

    def range(self, name: str, begin: int, end: int) -> None:
        """A named range on the host."""
        ...

    def operation(
        self,
        stream: int,
        correlation: int,
        kind: str,
        name: str,
        begin: int,
        end: int,
        size: int = -1,
    ) -> None:
        """A single operation of a stream."""
        ...

    def replay(
        self, stream: int, correlation: int, graph: Graph, times: Tensor, returned: int
    ) -> None:
        """All operations of a replay, as `Program.run` timed them, and when Python went on."""
        ...


class Graph:
    """A captured graph: an id, a name and its operations."""

    def __init__(self, number: int, name: str, program: Program) -> None:
        self.number, self.name, self.program = number, name, program


class Event:
    """Happens when a stream reaches it. stream, correlation: where and by which call recorded."""

    def __init__(self, stream: int, correlation: int) -> None:
        self.stream, self.correlation = stream, correlation
        self._closed = threading.Lock()
        self._closed.acquire()

    def happen(self) -> None:
        """Let everyone go on who waits."""
        self._closed.release()

    def wait(self) -> None:
        """Return when it has happened."""
        with self._closed:
            pass


class _Stream:
    """A queue and the thread that empties it."""

    def __init__(self, number: int) -> None:
        self.queue: SimpleQueue[Work | None] = SimpleQueue()
        self.failed: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=f"stream {number}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        torch.set_num_threads(1)
        with unoptimised(), torch.no_grad():
            while (work := self.queue.get()) is not None:
                try:
                    work()
                except BaseException as error:  # kept for the host, as CUDA keeps its errors
                    self.failed = self.failed or error


class StreamThread:
    """The device. `recorder`: told of everything that is queued while it is set."""

    name = "CPU thread (one torch thread a stream; not a GPU)"
    torch_device = "cpu"

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self._threads, self._switch_s = torch.get_num_threads(), sys.getswitchinterval()
        torch.set_num_threads(1)
        sys.setswitchinterval(min(SWITCH_S, self._switch_s))
        self._correlations, self._graphs = itertools.count(1), itertools.count(1)
        self._streams = [_Stream(0)]

    def new_stream(self) -> int:
        """A further stream, with a thread of its own."""
        self._streams.append(_Stream(len(self._streams)))
        return len(self._streams) - 1

    def capture(self, name: str, body: Callable[[], None]) -> Graph:
        """A graph of the operations of `body`, which runs once on the calling thread for it."""
        for stream in range(len(self._streams)):
            self.synchronize(stream)
        program = Program(body)
        with unoptimised():
            program.run()  # the first run prepares what later ones reuse
        return Graph(next(self._graphs), name, program)

    def replay(self, graph: Graph, stream: int = 0) -> None:
        """Queue all operations of a graph by one host call."""
        begin, recorder, correlation = time.monotonic_ns(), self.recorder, next(self._correlations)

        def work() -> None:
            times = graph.program.run()
            if recorder is not None:
                recorder.replay(stream, correlation, graph, times, time.monotonic_ns())

        self._put(stream, work)
        if recorder is not None:
            recorder.call("cpuGraphLaunch", begin, time.monotonic_ns(), correlation)

    def launch(self, name: str, work: Callable[[], object], stream: int = 0) -> None:
        """Queue one operation: `work` runs on the stream's thread."""
        self._launch("cpuLaunchKernel", "kernel", name, work, stream)

    def copy(self, target: Tensor, source: Tensor, kind: str, stream: int = 0) -> None:
        """Queue a copy between host memory and the device's: kind "HtoD" or "DtoH"."""
        way = {"HtoD": "Pinned -> Device", "DtoH": "Device -> Pinned"}[kind]
        size = source.numel() * source.element_size()
        name = f"Memcpy {kind} ({way})"
        self._launch("cpuMemcpyAsync", "memcpy", name, lambda: target.copy_(source), stream, size)

    def _launch(
        self,
        call: str,
        kind: str,
        name: str,
        work: Callable[[], object],
        stream: int,
        size: int = -1,
    ) -> None:
        begin, recorder, correlation = time.monotonic_ns(), self.recorder, next(self._correlations)

        def run() -> None:
            start = time.monotonic_ns()
            work()
            if recorder is not None:
                end = time.monotonic_ns()
                recorder.operation(stream, correlation, kind, name, start, end, size)

        self._put(stream, run)
        if recorder is not None:
            recorder.call(call, begin, time.monotonic_ns(), correlation)

    def record(self, stream: int = 0) -> Event:
        """An event that happens when what is queued in the stream so far is done."""
        begin, recorder = time.monotonic_ns(), self.recorder
        event = Event(stream, next(self._correlations))
        self._put(stream, event.happen)
        if recorder is not None:
            recorder.call("cpuEventRecord", begin, time.monotonic_ns(), event.correlation)
        return event

    def wait(self, event: Event, stream: int = 0) -> None:
        """Let a stream wait for an event; the host goes on."""
        begin, recorder = time.monotonic_ns(), self.recorder
        self._put(stream, event.wait)
        if recorder is not None:
            recorder.call(
                "cpuStreamWaitEvent",
                begin,
                time.monotonic_ns(),
                next(self._correlations),
                sync="stream wait",
                stream=stream,
                event_stream=event.stream,
                event_record=event.correlation,
            )

    def synchronize_event(self, event: Event) -> None:
        """Return when the event has happened."""
        begin, recorder = time.monotonic_ns(), self.recorder
        event.wait()
        if recorder is not None:
            recorder.call(
                "cpuEventSynchronize",
                begin,
                time.monotonic_ns(),
                next(self._correlations),
                sync="event",
                stream=event.stream,
                event_stream=event.stream,
                event_record=event.correlation,
            )
        self._raise_failure(event.stream)

    def synchronize(self, stream: int = 0) -> None:
        """Return when all that is queued in the stream is done."""
        begin, recorder = time.monotonic_ns(), self.recorder
        reached = Event(stream, next(self._correlations))
        self._streams[stream].queue.put(reached.happen)
        reached.wait()
        if recorder is not None:
            recorder.call(
                "cpuStreamSynchronize",
                begin,
                time.monotonic_ns(),
                reached.correlation,
                sync="stream",
                stream=stream,
            )
        self._raise_failure(stream)

    @contextmanager
    def annotate(self, name: str) -> Iterator[None]:
        """A named range on the host."""
        begin, recorder = time.monotonic_ns(), self.recorder
        try:
            yield
        finally:
            if recorder is not None:
                recorder.range(name, begin, time.monotonic_ns())

    def drain(self) -> None:
        """Return when every stream is empty, without a call that would be recorded."""
        for number in range(len(self._streams)):
            reached = Event(number, 0)
            self._streams[number].queue.put(reached.happen)
            reached.wait()

    def close(self) -> None:
        """Finish what is queued, end the threads and give torch and Python their settings back."""
        for stream in self._streams:
            stream.queue.put(None)
        for stream in self._streams:
            stream.thread.join()
        self._streams = []
        torch.set_num_threads(self._threads)
        sys.setswitchinterval(self._switch_s)

    def _put(self, stream: int, work: Work) -> None:
        self._raise_failure(stream)
        self._streams[stream].queue.put(work)

    def _raise_failure(self, stream: int) -> None:
        failed = self._streams[stream].failed
        if failed is not None:
            raise BubblescopeError(
                f"stream {stream} of the CPU thread: an operation failed: {failed}"
            ) from failed
