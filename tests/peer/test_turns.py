"""We, Paimon Java and pypaimon write, compact and read one table in turns, and always agree.

`$BUCKETLINE_TURNS` says how many tables of each sort are tried, and thereby how long it takes.
"""

import os
import random
from pathlib import Path

import pytest

from tests.support.peers.peer import PaimonJava, PyPaimon
from tests.support.tables.turns import Turns, draw_shape

pytestmark = pytest.mark.peer

TABLES = int(os.environ.get("BUCKETLINE_TURNS", "6"))
TURNS = 10


@pytest.mark.parametrize("seed", range(TABLES))
@pytest.mark.parametrize("sort", ["append", "deduplicate", "partial-update", "aggregation", "first-row"])
def test_all_writers_and_readers_agree_after_every_turn(
    paimon_java: PaimonJava, pypaimon: PyPaimon, sort: str, seed: int, tmp_path: Path
) -> None:
    draw = random.Random(f"{sort} {seed}")
    turns = Turns(tmp_path / "t", draw_shape(draw, None if sort == "append" else sort), draw, paimon_java, pypaimon)
    turns.create()
    for _ in range(TURNS):
        turns.turn()
