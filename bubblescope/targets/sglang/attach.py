"""A window of a server that runs already, through its own profiler (torch.profiler)."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from bubblescope.errors import BubblescopeError
from bubblescope.ingest import load_all
from bubblescope.targets.record import TIMED
from bubblescope.targets.sglang.server import STALL_S, Generation, Refused, Server
from bubblescope.timeline import Health, Timeline

PROMPT = 64
"""Tokens of the prompt of a request of ours."""
START_S = 180.0
"""Starting the profiler loads CUPTI in every rank, and stopping it writes the files."""
FILES_S = 30.0
"""How long files of further ranks may take after the first rank says that it is done."""
_MARGIN = 60
"""Steps that may pass between asking for the profiler and its last step."""
_POLL_S = 0.1
_SHOWN = (
    "attention_backend",
    "context_length",
    "disable_cuda_graph",
    "disable_overlap_schedule",
    "dp_size",
    "dtype",
    "ep_size",
    "kv_cache_dtype",
    "page_size",
    "pp_size",
    "quantization",
    "sampling_backend",
    "speculative_algorithm",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_num_steps",
    "tp_size",
)
"""What is kept of the server's settings: no key, path or command line."""
Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Info:
    """What a server says of itself. settings: as resolved by it; state: of its first scheduler."""

    settings: dict[str, Any]
    state: dict[str, Any]

    @classmethod
    def of(cls, server: Server) -> Info:
        """Ask it.

        Raises:
            BubblescopeError: it does not answer, or cannot be recorded.
        """
        try:
            said = server.get("/server_info")
        except Refused as error:
            if error.status != 404:
                raise
            said = server.get("/get_server_info")  # the older name
        if not isinstance(said, dict) or "model_path" not in said:
            raise BubblescopeError(f"{server.url}: says nothing of a model; is it SGLang's server?")
        states = said.get("internal_states") or [{}]
        made = cls(said, states[0] if isinstance(states[0], dict) else {})
        # There, asking for a plain window or stopping one ends the scheduler (0.5.23).
        if made.state.get("env_vars", {}).get("SGLANG_PROFILE_V2", "0").lower() in ("1", "true"):
            raise BubblescopeError(
                f"{server.url}: runs with SGLANG_PROFILE_V2, whose profiler cannot be stopped; "
                "start it without"
            )
        return made

    @property
    def ranks(self) -> int:
        """Processes that write a file."""
        sizes = (int(self.settings.get(k) or 1) for k in ("tp_size", "pp_size"))
        alone = int(self.settings.get("dp_size") or 1)
        if self.settings.get("enable_dp_attention"):
            alone = 1  # those ranks are tensor-parallel ranks as well
        product = alone
        for size in sizes:
            product *= size
        return int(self.state.get("world_size") or product)

    @property
    def most_tokens(self) -> int:
        """Tokens that a step can give at most."""
        if not self.settings.get("speculative_algorithm"):
            return 1
        return int(self.settings.get("speculative_num_draft_tokens") or 1)

    def tokens(self, first: int, steps: int) -> int:
        """New tokens to ask for so that so many decode steps are made; 0 where there is no room."""
        wanted = (first + steps + _MARGIN) * self.most_tokens
        room = self.settings.get("max_req_input_len")
        if room is None:
            return wanted
        most = int(room) - PROMPT
        return min(wanted, most) if most >= first + steps + 2 else 0

    def about(self) -> dict[str, str]:
        """What a report must say of it."""
        s = self.settings
        dummy = s.get("load_format") == "dummy"
        said = {
            "model": str(s["model_path"]),
            "weights": "dummy" if dummy else "of the server",
            "shard": f"{s.get('tp_size') or 1} tensor-parallel ranks",
            "acceptance": "as the server has it"
            if s.get("speculative_algorithm")
            else "no speculation",
            "engine": " ".join(f"{k}={s[k]}" for k in _SHOWN if s.get(k) is not None),
        }
        if s.get("version"):
            said["sglang"] = str(s["version"])
        simulated = self.state.get("env_vars", {}).get("SGLANG_SIMULATE_ACC_LEN")
        if simulated:
            said["acceptance"] = f"simulated acceptance, {simulated} tokens a step in the mean"
        accepted = self.state.get("avg_spec_accept_length")
        if accepted:
            said["accepted"] = f"{float(accepted):.2f} tokens a step since the server started"
        return said


def record(
    server: Server,
    first: int,
    steps: int,
    request: bool = True,
    progress: Progress = lambda _stage, _share: None,
) -> Timeline:
    """Record decode steps of a running server, all of its ranks.

    The server is sent one request if it is idle, and recorded about `first` steps into it. Else
    recording begins at once, with what the server is at.

    Args:
        server: where.
        first: about how many steps of a request of ours to let pass.
        steps: how many to record.
        request: whether to send one; otherwise this waits for the server's own traffic.
        progress: called with what is being done.

    Raises:
        BubblescopeError: the server cannot be asked or profiled, or its files are not here.
    """
    progress("asking the server", 0.0)
    info = Info.of(server)
    ours = request and _idle(server)
    folder = Path(tempfile.mkdtemp(prefix="bubblescope-attach-"))
    folder.chmod(0o777)  # the server may run as somebody else
    try:
        with _request(server, info, first, steps) if ours else _none() as generation:
            if generation is not None:
                _until_step(server, generation, first, progress)
                before = list(generation.arrived)
            with _profiling(server, folder, steps) as done:
                _until_written(server, folder, generation, steps, progress)
                done()
        missing = _complete(folder, info.ranks)
        _files(server, folder)
        timeline = load_all([folder], progress=progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    about = info.about()
    where = f"a request of bubblescope's, from about step {first:,} on" if ours else "its traffic"
    about["run"] = f"sglang: {about['model']} at {server.url}, {where}"
    about["server"] = server.url
    meta = structs.replace(
        timeline.meta,
        source="sglang",
        about={**timeline.meta.about, **about},
        unprofiled_step_ns=_unprofiled(before) if generation is not None else None,
    )
    return replace(timeline, meta=meta, health=_noted(timeline, missing, info.ranks))


# -- in between ------------------------------------------------------------------------------------


def _idle(server: Server) -> bool:
    """Whether it has no request; one that does not say is taken to have none."""
    try:
        loads = server.get("/v1/loads?include=core").get("loads", [])
    except Refused as error:
        if error.status == 404:
            return True
        raise
    keys = ("num_running_reqs", "num_waiting_reqs")
    return not any(load.get(key) for load in loads for key in keys)


@contextmanager
def _none() -> Iterator[None]:
    yield None


@contextmanager
def _request(server: Server, info: Info, first: int, steps: int) -> Iterator[Generation]:
    tokens = info.tokens(first, steps)
    if not tokens:
        room = info.settings["max_req_input_len"]
        raise BubblescopeError(
            f"{server.url}: takes requests of {room:,} tokens, too few for step {first + steps:,}; "
            "ask for an earlier --step"
        )
    generation = server.generate(
        {
            "input_ids": list(range(10, 10 + PROMPT)),
            "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
        },
        speculates=info.most_tokens > 1,
    )
    try:
        yield generation
    finally:
        generation.end()


def _until_step(server: Server, generation: Generation, first: int, progress: Progress) -> None:
    while generation.steps < first or not generation.tokens:
        progress("decoding up to the first step", generation.steps / max(first, 1))
        if generation.over:
            why = generation.problem or f"after {generation.tokens:,} tokens; ask for earlier steps"
            raise BubblescopeError(f"{server.url}/generate: the request ended: {why}")
        time.sleep(_POLL_S / 10)


@contextmanager
def _profiling(server: Server, folder: Path, steps: int) -> Iterator[Callable[[], None]]:
    """The profiler is on inside, and never left on.

    It stops by itself after its steps. To stop it once more is refused, but not before all of its
    files are written: that is how it is known that they are.
    """
    order = {
        "output_dir": str(folder),
        "num_steps": steps + 1,  # the first is cut: the device was in the middle of something
        "activities": ["CPU", "GPU"],
        "with_stack": False,
        "record_shapes": False,
    }
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        try:
            server.post("/stop_profile", {}, START_S)
        except Refused as error:
            if error.status != 500:
                raise

    try:
        _start(server, order)
        yield stop
    finally:
        if not stopped:
            with contextlib.suppress(BubblescopeError):
                stop()


def _start(server: Server, order: dict[str, Any]) -> None:
    try:
        server.post("/start_profile", order, START_S)
    except Refused as error:
        if error.status != 500:
            raise
        raise BubblescopeError(
            f"{server.url}/start_profile: the profiler does not start; one window at a time, and "
            "nothing else that uses CUPTI; see the server's log"
        ) from None


def _until_written(
    server: Server, folder: Path, generation: Generation | None, steps: int, progress: Progress
) -> None:
    """Until there is a file, or our request is over; traffic of others is waited for."""
    patience = STALL_S + steps  # a step of a busy server takes less than a second
    began = asked = time.monotonic()
    while not any(folder.iterdir()):
        seconds = time.monotonic() - began
        what = "recording" if generation is not None else "waiting for the server's traffic"
        progress(f"{what}, {seconds:.0f} s", 0.0)
        if generation is not None and generation.over:
            return  # stopping writes what there is
        if generation is None and time.monotonic() - asked > patience:
            if not _idle(server):  # raises where the server is gone
                return  # it has done its steps: the files are elsewhere
            asked = time.monotonic()
        time.sleep(_POLL_S)


def _complete(folder: Path, ranks: int) -> int:
    """Wait for the files of further schedulers; how many ranks are missing."""
    deadline = time.monotonic() + FILES_S
    sizes: list[int] = []
    while time.monotonic() < deadline:
        now = [p.stat().st_size for p in sorted(folder.iterdir())]
        if not now or (len(now) >= ranks and (ranks == 1 or now == sizes)):
            break
        sizes = now
        time.sleep(10 * _POLL_S)
    return max(ranks - len(list(folder.iterdir())), 0)


def _files(server: Server, folder: Path) -> None:
    if not any(folder.iterdir()):
        raise BubblescopeError(
            f"{server.url}: its profiler wrote nothing into {folder} that is seen from here; run "
            "this where the server runs (same container), with TMPDIR a folder that both see"
        )


def _unprofiled(arrived: list[tuple[int, int]]) -> int | None:
    """Mean step as its parts arrived, over the last ones before the profiler began."""
    if not arrived:
        return None
    last, end = arrived[-1]
    early = [(steps, at) for steps, at in arrived if 0 < steps <= last - TIMED]
    if not early:
        return None
    steps, begin = early[-1]
    return (end - begin) // (last - steps)


def _noted(timeline: Timeline, missing: int, ranks: int) -> Health:
    notes = [
        (
            "capture",
            1,
            "the server's torch.profiler records every graph node and every framework op, so host "
            "times and small kernels are longer than they are; the lines of blocking reads are "
            "not recorded",
        )
    ]
    if missing:
        text = f"{missing:,} of {ranks:,} ranks wrote no file that is seen from here"
        notes.append(("ranks missing", missing, text))
    kinds, counts, texts = zip(*notes, strict=True)
    more = Health.build(len(notes), rank=-1, kind=kinds, count=counts, note=texts)
    return Health.concat([timeline.health, more])
