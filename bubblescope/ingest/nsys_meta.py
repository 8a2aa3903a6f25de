"""What an Nsight Systems export says of itself, of its machine and of what it lost."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from bubblescope.ingest.nsys_places import Places, process_part, threads
from bubblescope.ingest.nsys_strings import Strings
from bubblescope.ingest.sqlite import NULL, Database
from bubblescope.timeline import Device, DeviceOps, Meta, ThreadName
from bubblescope.timeline.intervals import runs

_GPUS = ("TARGET_INFO_GPU", "TARGET_INFO_CUDA_GPU")
_EXPORT = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_VERSIONS = {
    "EXPORT_PRODUCT_VERSION": "Nsight Systems",
    "EXPORT_SCHEMA_VERSION": "export schema",
    "CudaDriverVersion": "CUDA driver",
    "NvDriverVersion": "driver",
}
_WARNING, _ERROR = 2, 3
_CONCERNS = re.compile(r"CUDA|CUPTI|NVTX|OS runtime|drop|lost|overflow", re.IGNORECASE)
"""Warnings about what is read here; others are about graphics, samples and the like."""

Notes = list[tuple[str, int, str]]
"""Health rows: kind, count, note."""


def meta(
    database: Database,
    strings: Strings,
    places: Places,
    ops: DeviceOps,
    source: str,
    base_ns: int,
) -> Meta:
    """The Timeline's meta."""
    return Meta(
        source=source,
        format="Nsight Systems",
        capture="Nsight Systems",
        base_ns=base_ns,
        devices=_devices(database, ops),
        threads=_threads(database, strings, places),
        versions=_versions(database),
        world_size=places.world,
        about=_about(database),
    )


def _facts(database: Database, table: str) -> dict[str, str]:
    """A table of names and values; the first of several values of a name."""
    rows = zip(
        database.texts(table, "name").to_list(),
        database.texts(table, "value").to_list(),
        strict=True,
    )
    return dict(reversed(list(rows)))


def _versions(database: Database) -> dict[str, str]:
    facts = _facts(database, "TARGET_INFO_SYSTEM_ENV")
    for table in _EXPORT:
        facts |= _facts(database, table)
    found = {label: facts[name] for name, label in _VERSIONS.items() if facts.get(name)}
    number = found.get("CUDA driver", "")
    if number.isdigit():  # 12040 is 12.4
        found["CUDA driver"] = f"{int(number) // 1000}.{int(number) % 1000 // 10}"
    return found


def _about(database: Database) -> dict[str, str]:
    facts = _facts(database, "META_DATA_CAPTURE")
    words = [facts.get("PROCESS_0:COMMAND", "")]
    while (key := f"PROCESS_0:ARGUMENT_{len(words) - 1}") in facts:
        words.append(facts[key])
    mode = next((v for k, v in facts.items() if k.endswith("CUDA_GRAPH_TRACE_OPTIONS:MODE")), "")
    about = {"run": " ".join(words).strip(), "CUDA graphs": mode.lower()}
    return {name: text for name, text in about.items() if text}


def _devices(database: Database, ops: DeviceOps) -> tuple[Device, ...]:
    """The GPUs that did something."""
    table = next((t for t in _GPUS if t in database), _GPUS[0])
    index, memory, multiprocessors = database.integers(
        table, "id|deviceId", "totalMemory", "smCount|numMultiprocessors"
    )
    names = database.texts(table, "name").to_list()
    row = {gpu: n for n, gpu in enumerate(index.tolist())}
    first, _ = runs(ops.rank, ops.device)
    pairs = sorted(set(zip(ops.rank[first].tolist(), ops.device[first].tolist(), strict=True)))
    return tuple(
        Device(
            rank,
            gpu,
            names[row[gpu]],
            max(0, int(memory[row[gpu]])),
            max(0, int(multiprocessors[row[gpu]])),
        )
        for rank, gpu in pairs
        if gpu in row
    )


def _threads(database: Database, strings: Strings, places: Places) -> tuple[ThreadName, ...]:
    """Names of the processes and threads that have rows."""
    found: dict[tuple[int, int, int], str] = {}
    (pid,) = database.integers("PROCESSES", "globalPid")
    (tid, name) = database.integers("ThreadNames", "globalTid", "nameId")
    for ids, names, of_process in (
        (pid, database.texts("PROCESSES", "name"), True),
        (tid, strings.column(name), False),
    ):
        part = process_part(ids)
        known = np.flatnonzero(np.isin(part, places.parts) & (ids != NULL))
        part = part[known]
        thread = np.full(len(known), -1) if of_process else threads(ids[known])
        rows = zip(
            places.ranks(part).tolist(),
            places.processes(part).tolist(),
            thread.tolist(),
            names.take(known).to_list(),
            strict=True,
        )
        for rank, process, number, text in rows:
            if text:
                found.setdefault((rank, process, number), text)
    return tuple(ThreadName(*key, text) for key, text in sorted(found.items()))


def notes(database: Database, places: Places, ops: DeviceOps) -> Notes:
    """What the export lost or leaves open."""
    found: Notes = []
    (severity,) = database.integers("DIAGNOSTIC_EVENT", "severity")
    texts = database.texts("DIAGNOSTIC_EVENT", "text").to_list()
    said = Counter(
        " ".join(text.split())
        for level, text in zip(severity.tolist(), texts, strict=True)
        if level == _ERROR or (level == _WARNING and _CONCERNS.search(text))
    )
    found += [("Nsight Systems says", count, text) for text, count in sorted(said.items())]
    whole = int(ops.kind.where(lambda kind: kind == "graph").sum())
    if whole:
        note = (
            f"{whole:,} graph replays are recorded as one block each; "
            "nsys profile --cuda-graph-trace=node records what is inside, and slows it"
        )
        found.append(("graph recorded whole", whole, note))
    for device in places.shared:
        note = f"several processes name device {device}: taken to be one GPU"
        found.append(("shared device", 1, note))
    return found
