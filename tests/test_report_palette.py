"""The colours, as people see them who lack one kind of cone."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt

from bubblescope.diagnose.model import Part
from bubblescope.report.palette import KINDS, kind

Vector = npt.NDArray[np.float64]

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
EYES = {
    "all cones": np.eye(3),
    "no red cones": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "no green cones": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "no blue cones": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])


def linear(colour: str) -> Vector:
    value = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb: Vector) -> Vector:
    t = XYZ @ rgb / WHITE
    x, y, z = np.where(t > 0.008856, np.cbrt(t), 7.787 * t + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_every_part_has_its_own_colour_and_letter() -> None:
    assert set(KINDS) == {"busy", *(part.label for part in Part)}
    assert len({k.colour for k in KINDS.values()}) == len(KINDS)
    assert len({k.letter for k in KINDS.values()}) == len(KINDS)


def test_no_two_colours_are_alike_to_anybody() -> None:
    for name, eyes in EYES.items():
        seen = {k: lab(np.clip(eyes @ linear(v.colour), 0, 1)) for k, v in KINDS.items()}
        for one, other in combinations(KINDS, 2):
            # 2.3 is just noticeable; small areas side by side need several times that.
            assert np.linalg.norm(seen[one] - seen[other]) > 15, (name, one, other)


def test_every_colour_shows_on_black() -> None:
    for k in KINDS.values():
        assert lab(linear(k.colour))[0] > 30, k


def test_a_kind_that_is_not_known_is_drawn_as_unknown() -> None:
    assert kind("novel") == kind("novel")
    assert kind("novel").label == "novel"
    assert kind("novel").colour == KINDS["unknown"].colour
