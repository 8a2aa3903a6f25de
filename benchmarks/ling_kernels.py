"""Check the kernels of optimizations/kernels against the references, and time them beside torch.

    python benchmarks/ling_kernels.py OUT [--sweep] [--only NAME] [--seconds 240]

Each case is a chain of launches in one CUDA graph, with as many copies of its weights as do not fit
in the L2 cache, as in a model's layers. What it gives and writes is compared with the reference,
launched alone and at the end of the chain's replays, with NaN where it is to write. Prints a table,
and writes it to OUT/ling_kernels.json with the bytes that a launch must read and the copy bandwidth
measured first. With --sweep, other tiles of each kernel too. Ends after so many seconds, whatever
is not measured yet. Exit code 1: a result is wrong, or a case failed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bubblescope.targets.ling.reference import kda, moe, mtp, norms
from bubblescope.targets.ling.reference import mla as plain_mla
from bubblescope.targets.ling.reference.linear import project_fp32
from bubblescope.targets.ling.reference.rope import rope_table
from optimizations.kernels import attend, mla
from optimizations.kernels.argmax import argmax
from optimizations.kernels.experts import experts
from optimizations.kernels.join import join
from optimizations.kernels.project import Tile, project
from optimizations.kernels.router import choose, gate
from optimizations.kernels.staged_kda import Commit, staged_kda

BF16, FP32 = torch.bfloat16, torch.float32
HIDDEN, HEADS, HEAD, EXPERTS, WIDTH, TOP, VOCABULARY = 2560, 8, 128, 512, 192, 8, 39_296
RANK, ROPE, DENSE, GROUPS, CONTEXT, BEFORE = 512, 64, 1536, 8, 16_384, 700
DEVICE = "cuda"
COLD = 400_000_000
"""Bytes of weights in a chain at least: several times the L2 cache."""


@dataclass(slots=True)
class Case:
    """One kernel in one shape.

    bytes: that a launch must read. make: one copy of weights, and inputs. ours, plain: what is
    compared and timed, given that; they return what is compared. written: and what else they write
    in the copy. spoil: makes NaN of what they are to write there. launches: of ours. sweep: other
    arguments of ours, by name.
    """

    name: str
    tokens: int
    bytes: int
    make: Callable[[], Any]
    ours: Callable[..., Any]
    plain: Callable[[Any], Any]
    tolerance: float = 1e-2
    written: Callable[[Any], Sequence[Tensor]] = lambda m: ()
    spoil: Callable[[Any], None] = lambda m: None
    launches: int = 1
    sweep: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured. us: median of replays over launches; spread: smallest and largest."""

    case: str
    tokens: int
    what: str
    error: float
    us: float
    spread: tuple[float, float]
    bytes: int
    tb_s: float


def draw(*shape: int, std: float = 1.0, dtype: torch.dtype = BF16) -> Tensor:
    return torch.empty(shape, device=DEVICE, dtype=dtype).normal_(std=std)


def unwritten(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return torch.full(shape, float("nan"), device=DEVICE, dtype=dtype)


def wide(size: int) -> int:
    """A row of projected values, which begins at a multiple of 16."""
    return -(-size // 16) * 16


def linear(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    return draw(*shape, std=shape[-1] ** -0.5, dtype=dtype)


def near_one(size: int) -> Tensor:
    return 1 + draw(size, std=0.1)


def projections(tokens: int) -> Iterator[Case]:
    cuts = {
        f"{t.rows} rows, {t.parts} x {t.part}, {t.held} held": {"cut": t}
        for t in (
            Tile(16, 8, 64, 0),
            Tile(16, 8, 64, 2),
            Tile(16, 4, 128, 2),
            Tile(16, 4, 64, 4),
            Tile(32, 8, 64, 1),
            Tile(32, 8, 64, 2),
            Tile(64, 8, 64, 1),
            Tile(64, 4, 64, 1),
        )
    }
    inner = HEADS * HEAD
    for name, rows in (
        ("kda in", wide(5 * inner + HEADS)),
        ("mla in", wide(HEADS * (HEAD + ROPE) + RANK + ROPE + HEADS)),
        ("dense in", 2 * DENSE),
    ):
        yield Case(
            f"norm + {name} {rows} x {HIDDEN}",
            tokens,
            rows * HIDDEN * 2,
            lambda rows=rows: (draw(tokens, HIDDEN), linear(rows, HIDDEN), near_one(HIDDEN)),
            lambda m, **how: project(m[0], m[1], norm=m[2], pdl=True, **how),
            lambda m: norms.rms_norm(m[0], m[2], 1e-6) @ m[1].t(),
            sweep=cuts,
        )
    yield Case(
        f"lm head {VOCABULARY} x {HIDDEN}, which the loop leaves to torch",
        tokens,
        VOCABULARY * HIDDEN * 2,
        lambda: (draw(tokens, HIDDEN), linear(VOCABULARY, HIDDEN)),
        lambda m, **how: project(m[0], m[1], dtype=FP32, pdl=True, **how),
        lambda m: project_fp32(m[0], m[1]),
        sweep=cuts,
    )
    yield Case(
        f"kda out {HIDDEN} x {inner}, gated norm before, residual",
        tokens,
        HIDDEN * inner * 2,
        lambda: (
            draw(tokens, inner, dtype=FP32),
            linear(HIDDEN, inner),
            near_one(HEAD),
            draw(tokens, wide(5 * inner + HEADS))[:, 4 * inner : 5 * inner],
            draw(tokens, HIDDEN),
        ),
        lambda m, **how: project(
            m[0], m[1], norm=m[2], gate=m[3], residual=m[4], dtype=BF16, pdl=True, **how
        ),
        lambda m: (
            m[4]
            + norms.gated_rms_norm(
                m[0].unflatten(1, (HEADS, HEAD)), m[2], m[3].unflatten(1, (HEADS, HEAD)), 1e-6
            )
            .flatten(1)
            .to(BF16)
            @ m[1].t()
        ),
        sweep={
            f"{r} rows, {p} parts, {h} held": {"cut": Tile(r, p, HEAD, h)}
            for r, p, h in ((16, 8, 0), (16, 4, 2), (32, 8, 1))
        },
    )
    yield Case(
        f"dense out {HIDDEN} x {DENSE}, SwiGLU before, residual",
        tokens,
        HIDDEN * DENSE * 2,
        lambda: (draw(tokens, 2 * DENSE), linear(HIDDEN, DENSE), draw(tokens, HIDDEN)),
        lambda m, **how: project(m[0], m[1], swiglu_limit=0.0, residual=m[2], pdl=True, **how),
        lambda m: m[2] + moe.swiglu(m[0], 0.0) @ m[1].t(),
    )


def plain_gate(m: Any) -> tuple[Tensor, Tensor]:
    normed = norms.rms_norm(m[0], m[2], 1e-6)
    return normed.float() @ m[1].float().t(), normed


def moe_cases(tokens: int) -> Iterator[Case]:
    for dtype, size in ((FP32, 4), (BF16, 2)):
        yield Case(
            f"router gate in {'fp32' if size == 4 else 'bf16'}, norm before",
            tokens,
            EXPERTS * HIDDEN * size,
            lambda dtype=dtype: (
                draw(tokens, HIDDEN),
                linear(EXPERTS, HIDDEN, dtype=dtype),
                near_one(HIDDEN),
            ),
            lambda m, **how: gate(m[0], m[1], norm=m[2], pdl=True, **how),
            plain_gate,
            sweep={f"{r} rows": {"rows": r} for r in (2, 8)},
        )
    yield Case(
        "router choice",
        tokens,
        tokens * EXPERTS * 4,
        lambda: (draw(tokens, EXPERTS, dtype=FP32), draw(EXPERTS, std=0.01, dtype=FP32)),
        lambda m, **how: choose(
            m[0], m[1], groups=GROUPS, top_groups=GROUPS // 2, top=TOP, scale=2.5, pdl=True, **how
        ),
        lambda m: moe.route(m[0], m[1], GROUPS, GROUPS // 2, TOP, 2.5),
        1e-5,
    )
    chosen = torch.stack([torch.randperm(EXPERTS)[:TOP] for _ in range(tokens)]).to(DEVICE)
    for name, picked in (("distinct", chosen), ("all the same", chosen[:1].repeat(tokens, 1))):
        distinct = len(picked.unique()) + 1
        yield Case(
            f"experts, {name}: {distinct - 1} and the shared one",
            tokens,
            distinct * 3 * WIDTH * HIDDEN * 2,
            lambda picked=picked: (
                draw(tokens, HIDDEN),
                linear(EXPERTS, 2 * WIDTH, HIDDEN),
                linear(EXPERTS, HIDDEN, WIDTH),
                linear(2 * WIDTH, HIDDEN),
                linear(HIDDEN, WIDTH),
                picked.clone(),
                torch.rand(tokens, TOP, device=DEVICE),
                draw(tokens, HIDDEN),
            ),
            lambda m, **how: experts(*m[:7], residual=m[7], pdl=True, **how),
            lambda m: (
                m[7] + moe.experts(m[0], m[1], m[2], m[5], m[6], 0) + moe.dense(m[0], m[3], m[4], 0)
            ),
            launches=2,
            sweep={
                f"in: {r} rows, {g} registers; out: {o} rows": {
                    "rows": r,
                    "registers": g,
                    "out_rows": o,
                }
                for r, g, o in (
                    (4, 168, 16),
                    (2, 128, 16),
                    (8, 128, 16),
                    (4, 96, 16),
                    (4, 128, 8),
                    (4, 128, 32),
                )
            },
        )


def kda_cases(tokens: int) -> Iterator[Case]:
    inner = HEADS * HEAD
    channels = 3 * inner

    def make() -> Any:
        projected = draw(tokens, wide(5 * inner + HEADS))
        return (
            projected[:, :channels],
            projected[:, channels : channels + inner],
            projected[:, 5 * inner : 5 * inner + HEADS],
            projected[:, 4 * inner : 5 * inner],
            draw(channels, 4, std=0.5, dtype=FP32),
            draw(HEADS, 1, std=0.5, dtype=FP32),
            draw(HEADS, HEAD, std=0.5, dtype=FP32) - 3,
            near_one(HEAD),
            draw(HEADS, HEAD, HEAD, dtype=FP32),
            draw(3, channels),
            unwritten(tokens, HEADS, HEAD, HEAD, dtype=FP32),
            unwritten(tokens, 3, channels),
        )

    def ours(m: Any, **how: Any) -> tuple[Tensor, Tensor]:
        staged_kda(
            *m[:3], *m[4:7], *m[8:10], staged_state=m[10], staged_history=m[11], pdl=True, **how
        )
        return m[10], m[11]

    def spoil(m: Any) -> None:
        m[10].fill_(float("nan"))
        m[11].fill_(float("nan"))

    yield Case(
        "staged KDA",
        tokens,
        (1 + tokens) * HEADS * HEAD * HEAD * 4,
        make,
        ours,
        lambda m: kda.kda(*m[:10])[1:],
        1e-4,
        spoil=spoil,
        sweep={
            f"{r} rows, {w} warps": {"rows": r, "warps": w}
            for r, w in ((4, 2), (8, 1), (8, 2), (8, 4), (16, 4), (16, 8))
        },
    )

    def layers() -> Any:
        """States, what is staged of them, the same of the convolution, and which token counts."""
        made = [
            (
                unwritten(HEADS, HEAD, HEAD, dtype=FP32),
                draw(tokens, HEADS, HEAD, HEAD, dtype=FP32),
                unwritten(3, channels),
                draw(tokens, 3, channels),
            )
            for _ in range(35)
        ]
        return made, Commit(made), torch.tensor([tokens // 2], device=DEVICE)

    def commit_plain(m: Any) -> tuple[()]:
        for state, staged_state, history, staged_history in m[0]:
            state.copy_(staged_state.index_select(0, m[2]).squeeze(0))
            history.copy_(staged_history.index_select(0, m[2]).squeeze(0))
        return ()

    def commit_ours(m: Any) -> tuple[()]:
        m[1](m[2], pdl=True)
        return ()

    def committed(m: Any) -> list[Tensor]:
        return [t for layer in m[0] for t in (layer[0], layer[2])]

    def uncommit(m: Any) -> None:
        for tensor in committed(m):
            tensor.fill_(float("nan"))

    yield Case(
        "commit of 35 layers (bytes read and written)",
        tokens,
        2 * 35 * (HEADS * HEAD * HEAD * 4 + 3 * channels * 2),
        layers,
        commit_ours,
        commit_plain,
        0.0,
        written=committed,
        spoil=uncommit,
    )


def mla_cases(tokens: int) -> Iterator[Case]:
    context, rank, rope, before = CONTEXT, RANK, ROPE, BEFORE
    angles = rope_table(context, rope, 6e6, DEVICE)
    table = torch.randperm(context, device=DEVICE)
    at = torch.arange(before, before + tokens, device=DEVICE)
    sizes = HEADS * (HEAD + rope), rank + rope, HEADS
    slots, scale = table[at], (HEAD + rope) ** -0.5

    def make() -> Any:
        return (
            *draw(tokens, wide(sum(sizes)))[:, : sum(sizes)].split(sizes, 1),
            linear(HEADS, HEAD, rank),
            linear(HEADS, HEAD, rank),
            near_one(rank),
            draw(context, rank + rope),
        )

    def ours(m: Any, **how: Any) -> Tensor:
        q, kv, gates, key, value, norm, cache = m
        queries = mla.prepare(q, kv, key, norm, *angles, at, slots, cache, pdl=True)
        seen = attend.attend(queries, cache, at, table, rank=rank, scale=scale, pdl=True, **how)
        return mla.values(seen, value, gates, pdl=True)

    def plain(m: Any) -> Tensor:
        q, kv, gates, key, value, norm, cache = m
        cosines, sines = angles[0][at], angles[1][at]
        queries = plain_mla.queries(q.view(tokens, HEADS, -1), key, cosines, sines)
        cache.index_copy_(0, slots, plain_mla.latents(kv, norm, cosines, sines, 1e-6))
        seen = plain_mla.attention(queries, cache[table], at, rank, scale)
        return plain_mla.values(seen, value, gates)

    yield Case(
        f"MLA after {before} positions, four kernels",
        tokens,
        2 * HEADS * HEAD * rank * 2 + (before + tokens) * (rank + rope) * 2,
        make,
        ours,
        plain,
        2e-2,
        written=lambda m: [m[6][slots]],
        spoil=lambda m: m[6].index_fill_(0, slots, float("nan")),
        launches=4,
        sweep={
            f"{s} splits of {k}": {"splits": s, "keys": k}
            for s, k in ((16, 32), (32, 16), (64, 16))
        },
    )
    said = torch.arange(tokens, device=DEVICE)
    yield Case(
        f"draft head's input {HIDDEN} x {2 * HIDDEN}",
        tokens,
        HIDDEN * 2 * HIDDEN * 2,
        lambda: (
            draw(64, HIDDEN),
            draw(tokens, HIDDEN),
            near_one(HIDDEN),
            near_one(HIDDEN),
            linear(HIDDEN, 2 * HIDDEN),
        ),
        lambda m: join(said, *m, pdl=True),
        lambda m: mtp.join(m[0][said], *m[1:], 1e-6),
    )
    yield Case(
        f"argmax of {VOCABULARY} logits",
        tokens,
        tokens * VOCABULARY * 4,
        lambda: draw(tokens, VOCABULARY, dtype=FP32),
        lambda m: argmax(m, pdl=True),
        lambda m: m.argmax(-1),
        0.0,
        launches=2,
    )


def copies(case: Case) -> int:
    """Of a case's weights in a chain, by what they are said to read and what memory holds."""
    if case.name.startswith("experts"):
        return 8  # 1.5 GB each, of which one launch reads few experts
    if case.name.startswith("commit"):
        return 4
    return max(4, min(40, -(-COLD // case.bytes)))


def outcome(case: Case, returned: Any, m: Any) -> list[Tensor]:
    """A copy of all that a launch gave and wrote."""
    given = [returned] if isinstance(returned, Tensor) else [*returned]
    return [t.clone() for t in (*given, *case.written(m))]


def error(actual: list[Tensor], expected: list[Tensor]) -> float:
    """Norm of the difference over the norm, of that tensor in which it is largest.

    Raises:
        RuntimeError: what is expected has NaN, or is 0: the case checks nothing.
    """
    worst = 0.0
    for mine, theirs in zip(actual, expected, strict=True):
        wanted = theirs.double()
        size = float(wanted.norm())
        if not 0 < size < float("inf"):
            raise RuntimeError(f"the reference gave a tensor of norm {size}: nothing to compare to")
        apart = float((mine.double() - wanted).norm()) / size
        worst = max(worst, apart) if apart == apart else float("inf")
    return worst


def checked(case: Case, body: Callable[[Any], Any], m: Any, expected: list[Tensor]) -> float:
    """The error of one launch, alone."""
    case.spoil(m)
    with torch.no_grad():
        return error(outcome(case, body(m), m), expected)


def graph_of(body: Callable[[Any], Any], made: list[Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    """A chain over all copies, and what its last launch returned: memory of the graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        body(made[0])
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for m in made:
                returned = body(m)
    return graph, returned


def timed(graph: torch.cuda.CUDAGraph, launches: int, repeats: int = 15) -> list[float]:
    """Microseconds a launch, of each replay."""
    for _ in range(3):
        graph.replay()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) * 1e3 / launches for a, b in itertools.pairwise(events)]


def measure(case: Case, sweep: bool, until: float) -> Iterator[Row]:
    made = [case.make() for _ in range(copies(case))]
    ways = {"torch": case.plain, "ours": case.ours}
    if sweep:
        ways |= {
            f"ours: {name}": lambda m, how=how: case.ours(m, **how)
            for name, how in case.sweep.items()
        }
    case.spoil(made[-1])
    with torch.no_grad():
        expected = outcome(case, case.plain(made[-1]), made[-1])
    for what, body in ways.items():
        if time.monotonic() > until:
            return
        try:
            wrong = checked(case, body, made[-1], expected)
            graph, returned = graph_of(body, made)
            case.spoil(made[-1])
            spent = timed(graph, len(made))
            wrong = max(wrong, error(outcome(case, returned, made[-1]), expected))
        except Exception as failure:  # a tile that does not fit is a result too
            if not what.startswith("ours: "):
                raise
            print(f"  {what}: {str(failure).splitlines()[0][:100]}", flush=True)
            continue
        us = statistics.median(spent)
        yield Row(
            case.name,
            case.tokens,
            what,
            wrong,
            us,
            (min(spent), max(spent)),
            case.bytes,
            case.bytes / us / 1e6,
        )


def copy_bandwidth() -> float:
    """Bytes a second that a copy on the device reads and writes."""
    source = torch.empty(4 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    graph, _ = graph_of(lambda _: target.copy_(source), [None])
    spent = timed(graph, 1, 5)
    return 2 * source.numel() / (min(spent) / 1e6)


def cases() -> list[Case]:
    return [
        case
        for tokens in (6, 1)
        for kind in (moe_cases, projections, kda_cases, mla_cases)
        for case in kind(tokens)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=240)
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    torch.manual_seed(0)
    given.out.mkdir(parents=True, exist_ok=True)
    bandwidth = copy_bandwidth()
    torch.cuda.empty_cache()
    print(f"{torch.cuda.get_device_name()}: copies {bandwidth / 1e12:.2f} TB/s", flush=True)
    rows: list[Row] = []
    wrong: list[str] = []
    skipped: list[str] = []

    def save() -> None:
        said = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "copy_bytes_per_s": bandwidth,
            "rows": [asdict(row) for row in rows],
            "wrong": wrong,
            "skipped": skipped,
        }
        (given.out / "ling_kernels.json").write_text(json.dumps(said, indent=1))

    for case in cases():
        name = f"{case.name}, {case.tokens} tokens"
        if given.only not in case.name:
            continue
        if time.monotonic() > until:
            skipped.append(name)
            continue
        floor = case.bytes / bandwidth * 1e6
        print(f"{name}: floor {floor:.2f} us", flush=True)
        try:
            for row in measure(case, given.sweep, until):
                good = row.error <= case.tolerance
                print(
                    f"  {row.us:9.2f} us {row.tb_s:6.2f} TB/s  {row.us / floor:5.2f} x floor"
                    f"  error {row.error:.1e}{'' if good else '  WRONG'}  {row.what}",
                    flush=True,
                )
                rows.append(row)
                if not good:
                    wrong.append(f"{name}, {row.what}: error {row.error:.1e}")
        except Exception as failure:  # the others are still worth their time on the device
            wrong.append(f"{name}: {str(failure).splitlines()[0][:200]}")
            print(f"  FAILED: {wrong[-1]}", flush=True)
        save()
        torch.cuda.empty_cache()
    save()
    for name in skipped:
        print(f"not measured, time is up: {name}")
    for name in wrong:
        print(f"WRONG: {name}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
