"""What follows from the events of the inputs made from public reports, worked out by hand.

What each input shows stands in the corpus's REPORTS.md. All figures are in us: [a, b) is a bubble;
its call is the one that launched the operation which ends it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

NOTHING = ("nothing recorded", "")


@dataclass(frozen=True)
class Expected:
    """Totals of one device. bubbles: (how many, how long). parts, fillers: those over 0."""

    window: int
    busy: int
    operations: int
    bubbles: list[tuple[int, int]]
    parts: dict[str, int]
    fillers: dict[tuple[str, str], int] = field(default_factory=dict)


EXPECTED = {
    # 3 replays of 10 x (9 busy + 3 gap); between them [1147,1230) and [1347,1430), their calls
    # [1200,1220) and [1400,1420): 53 before the call, 20 in it, 10 after it, twice.
    "01": Expected(
        window=1547 - 1030,
        busy=30 * 9,
        operations=30,
        bubbles=[(27, 3), (2, 83)],
        parts={"graph gap": 81, "host gap": 106, "launch call": 40, "launch latency": 20},
        fillers={NOTHING: 106},
    ),
    # [6600,9400), call [7320,7970). Before it: nothing to 7000, replay_prepare to 7300, replay.
    "02": Expected(
        window=12600 - 3400,
        busy=2 * 4 * 800,
        operations=8,
        bubbles=[(1, 2800)],
        parts={"host gap": 720, "launch call": 650, "launch latency": 1430},
        fillers={
            NOTHING: 400,
            ("annotation", "replay_prepare"): 300,
            ("annotation", "replay"): 20,
        },
    ),
    # [1410,1420) and [1510,1520): their calls returned at 1405 and 1505, so both were queued.
    "04": Expected(
        window=1610 - 1320,
        busy=270,
        operations=3,
        bubbles=[(2, 10)],
        parts={"device gap": 20},
    ),
    # [5960,14040): eight launches that left no kernel were issued between the two replays.
    "06": Expected(
        window=14960 - 5040,
        busy=2 * 8 * 115,
        operations=16,
        bubbles=[(1, 8080)],
        parts={"unknown": 8080},
    ),
    # 16 kernels of 100, end to end.
    "08": Expected(window=1600, busy=1600, operations=16, bubbles=[], parts={}),
    # [10450,16450), call [16400,16405), and the same 10,000 later. Innermost frames up to the
    # call: execute_model 350, step 100, none 100, step 10, schedule 5200, step 90, execute_model
    # 100.
    "09": Expected(
        window=30450 - 6450,
        busy=12 * 1000,
        operations=12,
        bubbles=[(2, 6000)],
        parts={"host gap": 2 * 5950, "launch call": 2 * 5, "launch latency": 2 * 45},
        fillers={
            ("Python frame", "scheduler.py(88): schedule"): 2 * 5200,
            ("Python frame", "model_runner.py(40): execute_model"): 2 * 450,
            ("Python frame", "engine.py(210): step"): 2 * 200,
            NOTHING: 2 * 100,
        },
    ),
    # Before each copy 1, queued long before. [5053,13050), call [13000,13005), three times: the
    # read returns at 5087 (34), _local_scalar_dense ends at 5089, item at 5090, none to 5100,
    # process_outputs to 9100, schedule to 12900, none to 13000; call 5, latency 45.
    "10": Expected(
        window=41053 - 1050,
        busy=20 * 800 + 4 * 2,
        operations=24,
        bubbles=[(4, 1), (3, 7997)],
        parts={
            "read tail": 3 * 34,
            "host gap": 3 * 7913,
            "launch call": 3 * 5,
            "launch latency": 3 * 45,
            "device gap": 4,
        },
        fillers={
            ("Python frame", "output_processor.py(31): process_outputs"): 3 * 4000,
            ("Python frame", "scheduler.py(88): schedule"): 3 * 3800,
            NOTHING: 3 * 110,
            ("framework op", "aten::_local_scalar_dense"): 3 * 2,
            ("framework op", "aten::item"): 3 * 1,
        },
    ),
    # [13020,41020), call [41000,41005), twice: the read returns at 13030, then 70 + 3 x 100 + 4000
    # of nothing around 4 x 5900 of sends.
    "11": Expected(
        window=93020 - 1020,
        busy=3 * 12000,
        operations=3,
        bubbles=[(2, 28000)],
        parts={
            "read tail": 2 * 10,
            "host gap": 2 * 27970,
            "launch call": 2 * 5,
            "launch latency": 2 * 15,
        },
        fillers={("annotation", "send_schedule_seqs"): 2 * 4 * 5900, NOTHING: 2 * 4370},
    ),
    # Before each of 9 copies 1, queued. Then [t+33,t'+10) with t' - t = 300 six times and 400
    # twice: read tail 10, op to t+68 (25; the ninth op ends no bubble), none to t', call 5,
    # latency 5.
    "12": Expected(
        window=3633 - 1010,
        busy=9 * 22,
        operations=18,
        bubbles=[(9, 1), (6, 277), (2, 377)],
        parts={
            "device gap": 9,
            "read tail": 8 * 10,
            "host gap": 6 * 257 + 2 * 357,
            "launch call": 8 * 5,
            "launch latency": 8 * 5,
        },
        fillers={
            ("framework op", "aten::item"): 3 * 25,
            ("framework op", "aten::nonzero"): 3 * 25,
            ("framework op", "aten::is_nonzero"): 2 * 25,
            NOTHING: 6 * 232 + 2 * 332,
        },
    ),
    # [21022,21060), call [21050,21055): the read returns at 21030, aten::item ends at 21050.
    "13": Expected(
        window=41060 - 1020,
        busy=40 * 1000 + 2,
        operations=41,
        bubbles=[(1, 38)],
        parts={"read tail": 8, "host gap": 20, "launch call": 5, "launch latency": 5},
        fillers={("framework op", "aten::item"): 20},
    ),
    # [1110,2010), call [2000,2005): in the stream sync to 1115, in the device sync [1200,1900).
    "15": Expected(
        window=2110 - 1010,
        busy=200,
        operations=2,
        bubbles=[(1, 900)],
        parts={"read tail": 5 + 700, "host gap": 85 + 100, "launch call": 5, "launch latency": 5},
        fillers={NOTHING: 185},
    ),
    # [1030,1130), call [1100,1160), which its first node does not wait for: 70 + 30.
    # [2330,2410), call [2400,2405): 70 + 5 + 5.
    "17": Expected(
        window=2460 - 1010,
        busy=20 + 6 * 200 + 50,
        operations=8,
        bubbles=[(1, 100), (1, 80)],
        parts={"host gap": 140, "launch call": 35, "launch latency": 5},
        fillers={NOTHING: 140},
    ),
    # [1060,2010), call [2000,2005).
    "19": Expected(
        window=2060 - 1010,
        busy=100,
        operations=2,
        bubbles=[(1, 950)],
        parts={"host gap": 940, "launch call": 5, "launch latency": 5},
        fillers={NOTHING: 940},
    ),
    # Five gaps of 10. With device times 3 later, each ends where its launch call begins: all of
    # it lies before the call.
    "21": Expected(
        window=1287 - 997,
        busy=6 * 40,
        operations=6,
        bubbles=[(5, 10)],
        parts={"host gap": 50},
        fillers={NOTHING: 50},
    ),
    # [100,120), call [100,105), three times; nothing of the two that were dropped.
    "22": Expected(
        window=400 - 20,
        busy=4 * 80,
        operations=4,
        bubbles=[(3, 20)],
        parts={"launch call": 3 * 5, "launch latency": 3 * 15},
    ),
    # [3010,7060), call [7050,7055): cudaFree to 5025, aten::empty to 5030, cudaMalloc to 6930,
    # aten::empty to 7020, none to 7050.
    "31": Expected(
        window=9060 - 1010,
        busy=4000,
        operations=2,
        bubbles=[(1, 4050)],
        parts={"host gap": 4040, "launch call": 5, "launch latency": 5},
        fillers={
            ("allocator", "cudaFree"): 2015,
            ("allocator", "cudaMalloc"): 1900,
            ("framework op", "aten::empty"): 5 + 90,
            NOTHING: 30,
        },
    ),
    # [1050,1110), call [1100,1105): 50 + 5 + 5. [1150,4960), call [4950,5950): requests to 3950,
    # none to 4000, loading to 4900, none to 4950, then 10 of the call.
    "36": Expected(
        window=5000 - 1010,
        busy=120,
        operations=3,
        bubbles=[(1, 60), (1, 3810)],
        parts={"host gap": 50 + 3800, "launch call": 5 + 10, "launch latency": 5},
        fillers={
            ("profiler overhead", "Activity Buffer Request"): 2800,
            ("profiler overhead", "Lazy Function Loading"): 900,
            NOTHING: 50 + 50 + 50,
        },
    ),
}

# entry: (name, under, calls, that waited, blocked, exposed, idle after), the most exposed first
READS = {
    "04": [("cudaDeviceSynchronize", "", 1, 0, 10, 0, 0)],  # all was done when it was called
    # No sync rows: 20 waits of 955, each longer than 10; what they cost is not known.
    "06": [("cudaStreamSynchronize", "", 20, 20, 20 * 955, 0, 0)],
    # [1079,5087) waits 4008: the read tail of 34 and the next 3974 of its bubble. The fourth
    # read is the last thing recorded. The copy before it is part of the read, not one of its own.
    "10": [("cudaStreamSynchronize", "aten::item", 4, 4, 4 * 4008, 3 * 4008, 3 * 7997)],
    # 12000 of 27985 late; the third ends the recording.
    "11": [("cudaEventSynchronize", "", 3, 3, 36000, 2 * 12000, 2 * 28000)],
    # Each waits 25 and is followed by more late time than that; the last ends the recording.
    "12": [
        ("cudaStreamSynchronize", "aten::item", 3, 3, 75, 3 * 25, 3 * 277),
        ("cudaStreamSynchronize", "aten::nonzero", 3, 3, 75, 3 * 25, 3 * 277),
        ("cudaStreamSynchronize", "aten::is_nonzero", 3, 3, 75, 2 * 25, 2 * 377),
    ],
    # Long, but followed by no more than 8 + 20 + 5 of late time, in a bubble of 38.
    "13": [("cudaStreamSynchronize", "aten::item", 1, 1, 19845, 33, 38)],
    # The stream sync waited to 1110; the device sync began after that: it is charged nothing, and
    # its tail counts against the one that waited: 5 + 85 + 5 of it, until 95 are spent.
    "15": [
        ("cudaStreamSynchronize", "", 1, 1, 95, 95, 900),
        ("cudaDeviceSynchronize", "", 1, 0, 700, 0, 0),
    ],
    "36": [("cudaDeviceSynchronize", "", 1, 0, 1780, 0, 0)],  # no work follows, none was left
}

# entry: (words in the marker's name, durations).
# The first step has nothing recorded before it, so its bubble is missing; medians leave it out.
STEPS = {
    "01": (["graph", "10"], [117, 200, 200]),  # [1030, 1147, 1347, 1547)
    "02": (["replay"], [3200, 6000]),  # replay_prepare launches nothing
    "08": (["step[DECODE] #"], [400] * 4),  # by launch; none of it overlaps its marker
    "10": (["cycle", "6"], [4003, 12000, 12000, 12000]),  # five kernels and a copy
    "12": (["cycle", "6"], [623, 1000, 1000]),  # item, nonzero, is_nonzero
}
