from __future__ import annotations

import time

import pytest

from bubblescope.capture import later


def deliver(error):
    later.raise_in_thread(error)
    for _ in range(200):
        time.sleep(0.005)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(5), ValueError("a", 1)])
def test_what_could_not_be_raised_is_raised_a_moment_later(error):
    with pytest.raises(type(error)) as found:
        deliver(error)
    assert found.value.args == error.args
    if isinstance(error, SystemExit):
        assert found.value.code == 5
