"""pytest plugin: a test fails when the code under it reads back or idles beyond a budget.

    @pytest.mark.bubbles(max_reads=0)
    def test_decode(model):
        model.decode()                      # the whole test is one step

    def test_loop(model, bubbles):
        with bubbles(max_reads=0, max_idle="5%", warmup=10):
            for batch in batches:
                model.decode(batch)
                bubbles.step()              # ends a step

docs/check.md says what the limits mean. What nothing uses costs nothing: the rest of bubblescope
is imported by the first test that is marked or asks for the fixture.
"""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import pytest

from bubblescope.errors import BubblescopeError

if TYPE_CHECKING:
    from bubblescope.capture.backend import Backend
    from bubblescope.compare import Run
    from bubblescope.tracing.session import trace

MARKER = "bubbles"
_EVERY = 1 << 62
"""So many steps are recorded where their number is not given."""
_BUDGETS = 'max_reads=0, max_reads_in_all=0, max_idle="5%", max_step="9ms" or max_launches=50'


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(max_reads=N, max_idle='5%', ...): record what the test runs on the GPU, and "
        "fail where it exceeds the budget",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A marked test uses the fixture, whether it names it or not."""
    for item in items:
        if item.get_closest_marker(MARKER) is not None:
            names = getattr(item, "fixturenames", None)
            if names is not None and MARKER not in names:
                names.append(MARKER)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Record a marked test and hold it to its budget."""
    mark = item.get_closest_marker(MARKER)
    if mark is None:
        return (yield)
    found = getattr(item, "funcargs", {}).get(MARKER)
    if not isinstance(found, Bubbles):
        pytest.fail(f"the marker {MARKER} is for test functions and methods", pytrace=False)
    if mark.args:
        pytest.fail(f"the marker {MARKER} takes names: {_BUDGETS}", pytrace=False)
    with found(**mark.kwargs):
        return (yield)


@pytest.fixture
def bubbles_backend() -> Backend | None:
    """What to record with: CUPTI, or torch.profiler where CUPTI is not there. Override it at will.

    A fixture of this name in a conftest.py may give any `bubblescope.capture.backend.Backend`.
    """
    return None


@pytest.fixture
def bubbles(bubbles_backend: Backend | None) -> Bubbles:
    """Hold a block to a budget: call it in a `with`. Skips where there is no CUDA device."""
    if bubbles_backend is None:
        why = _no_device()
        if why:
            pytest.skip(f"no CUDA device: {why}")
    return Bubbles(bubbles_backend)


class Bubbles:
    """The fixture: call it for a block with a budget; `step` ends a step in the block."""

    def __init__(self, backend: Backend | None) -> None:
        """`backend`: what to record with; None for what is best here."""
        self._backend = backend
        self._block: Block | None = None

    def __call__(self, *, warmup: int = 0, steps: int | None = None, **budget: Any) -> Block:
        """A context manager that records what runs in it, and fails the test at its end.

        Args:
            warmup: so many steps are run before the first one that counts.
            steps: how many count; all that follow where None.
            budget: as `bubblescope.check.Budget.parse` takes it.
        """
        import inspect

        from bubblescope.check import Budget

        if self._block is not None:
            _fail("this test is recorded already")
        known = inspect.signature(Budget.parse).parameters
        for name in budget:
            if name not in known:
                _fail(f"no limit is called {name}; a budget is {_BUDGETS}")
        try:
            limits = Budget.parse(**budget)
        except BubblescopeError as error:
            _fail(f"{error}; a budget is {_BUDGETS}")
        if limits.empty:
            _fail(f"nothing to check; give a budget: {_BUDGETS}")
        for number in (warmup, 1 if steps is None else steps):
            if not isinstance(number, int):
                _fail(f"warmup and steps are whole numbers, not {number!r}")
        return Block(self, limits, warmup, steps, self._backend)

    def step(self) -> None:
        """One step has ended, and the next begins."""
        if self._block is None:
            pytest.fail("bubbles.step() outside of a block and of a marked test", pytrace=False)
        self._block.step()

    def _enter(self, block: Block | None) -> None:
        self._block = block


class Block:
    """A stretch of a test that is recorded: each `step` ends a step, without any it is one."""

    def __init__(
        self,
        owner: Bubbles,
        budget: Any,
        warmup: int,
        steps: int | None,
        backend: Backend | None,
    ) -> None:
        """Records steps [warmup, warmup + steps)."""
        from bubblescope.tracing.session import trace

        self._owner, self._budget = owner, budget
        self._warmup, self._steps = warmup, steps
        wanted = _EVERY if steps is None else steps
        try:
            self._trace: trace = trace(step=warmup, steps=wanted, backend=backend)
        except ValueError:
            _fail("warmup must be 0 or more, steps 1 or more")
        self._made = 0

    def step(self) -> None:
        """One step has ended, and the next begins."""
        try:  # costs nothing while it goes well: this is inside what is recorded
            self._trace.step()
        except BubblescopeError as problem:
            _not_recorded(problem)
        self._made += 1

    def __enter__(self) -> Self:
        """Recording begins, unless there are steps to warm up."""
        if self._owner._block is not None:
            _fail("this test is recorded already")
        try:
            self._trace.__enter__()
        except BubblescopeError as problem:
            _not_recorded(problem)
        self._owner._enter(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Recording ends; the test fails here where the budget is exceeded."""
        self._owner._enter(None)
        if kind is None:
            # What follows the last step is none, a block without steps is one.
            try:
                self._trace.step()
            except BubblescopeError as problem:
                _not_recorded(problem)
        self._trace.__exit__(kind, error, traceback)
        if kind is not None:
            return
        from bubblescope.check import evaluate
        from bubblescope.report.check import as_text

        try:
            lines = evaluate(self._run(), self._budget)
        except BubblescopeError as problem:
            _fail(f"nothing was checked: {problem}")
        said = as_text(lines)
        if said:
            _fail(f"over the budget\n{said}")

    def _run(self) -> Run:
        from bubblescope.compare import Run

        made = max(self._made, 1)
        if made <= self._warmup:
            raise BubblescopeError(
                f"the test made {made:,} steps and {self._warmup:,} of them were to warm up"
            )
        last = made if self._steps is None else min(made, self._warmup + self._steps)
        return Run.of(self._trace.timeline, window=(self._warmup, last))


def _fail(message: str) -> NoReturn:
    """Fail the test with these words alone, whatever went before."""
    raise pytest.fail.Exception(f"bubbles: {message}", pytrace=False) from None


def _not_recorded(problem: BubblescopeError) -> NoReturn:
    _fail(f"nothing was recorded: {problem}")


def _no_device() -> str:
    """Why nothing can be recorded on a GPU here, "" where there is one."""
    from bubblescope.doctor.ask.cuda import answer

    told = answer()
    if not told["library"]:
        return "the NVIDIA driver's libcuda.so.1 is not there"
    if told["result"]:
        return f"cuInit returned {told['result']}"
    return "" if told["devices"] else "the driver finds none"
