"""A search for shapes of messages that cost many times what others cost: drawn columns, values and layouts.

Reading is compared with Python's parser on the same texts, so that long messages may take longer. Only CPU time counts.
`.ci/run bench decode` draws many more shapes.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.models.drawn_messages import COUNT, drawn, reader_of

MOST = 20
"""Drawn shapes were found at 0.3 to 9 times Python's parser; the cliffs that were mended, at 50 times."""


def cpu(call: Callable[[], Any], turns: int) -> float:
    best = float("inf")
    for _ in range(turns):
        started = time.process_time()
        call()
        best = min(best, time.process_time() - started)
    return best


@pytest.mark.parametrize("seed", [*range(12), 24])
def test_no_drawn_shape_of_messages_costs_many_times_its_parsing(seed: int) -> None:
    fields, values, is_event, watch, told = drawn(seed)
    texts = values.to_pylist()

    read = reader_of(fields, values, is_event, watch)
    assert read() == COUNT
    parsing = cpu(lambda: [json.loads(text) for text in texts], 3)
    assert cpu(read, 3) < MOST * parsing, told
