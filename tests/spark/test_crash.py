"""The streaming job dies, at named steps and at moments drawn by seed, and is started again until it is done.

At drawn moments it is killed. At named steps its files are copied, and it goes on with the copy: that is what a kill
leaves there, when the JVM waits for the driver. `.ci/run crash-long` kills it there, too.

Judged after every death, not only at the end: each table then shows a whole number of batches, each of them once.
"""

import os
import random
from pathlib import Path

import pytest

from tests.support.processes.stream_job import KILL_POINTS, Kill
from tests.support.spark.crash_shop import Shop, kinds

pytestmark = pytest.mark.spark

DEATHS = Shop.killed_at if "BUCKETLINE_CRASH_KILLS" in os.environ else Shop.given_up_at
KILLS = int(os.environ.get("BUCKETLINE_CRASH_KILLS", "4"))
SEED = int(os.environ.get("BUCKETLINE_CRASH_SEED", "20240229"))
LONGEST_SECONDS = 4.0
"""From the first batch of a run to its death; three or four batches, the first of which is slow."""


STEPS = (
    *(Kill(point, 2 * turn + 1) for turn, point in enumerate(KILL_POINTS)),  # batches that compact
    Kill("after manifests", 14, table=1),
    Kill("after APPEND", 15, table=1),
)


@pytest.mark.timeout(1200)
def test_a_run_that_dies_at_each_step_in_turn_ends_as_one_without_a_death(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.add(16)
    for kill, left in DEATHS(shop, STEPS):
        appended = KILL_POINTS.index(kill.point) >= KILL_POINTS.index("after APPEND")
        compacted = KILL_POINTS.index(kill.point) >= KILL_POINTS.index("after COMPACT")
        if kill.table == 0:
            assert left.check() == (kill.batch_id + appended, kill.batch_id), kill
            assert ((kill.batch_id, "COMPACT") in kinds(left.keyed)) == compacted, kill
        else:
            assert left.check() == (kill.batch_id + 1, kill.batch_id + appended), kill


def test_a_batch_may_die_at_one_step_after_the_other(tmp_path: Path) -> None:
    """Also while a run makes up for what an earlier one left: the compaction that is owed dies as well."""
    shop = Shop(tmp_path)
    shop.add(2)
    points = ("after APPEND", "between APPEND and COMPACT", "after COMPACT")
    for kill, left in DEATHS(shop, [Kill(point, 1) for point in points]):
        assert left.check() == (2, 1)
        assert len(kinds(left.keyed)) == (3 if kill.point == "after COMPACT" else 2)


@pytest.mark.timeout(60 * (KILLS + 5))
def test_runs_killed_at_moments_drawn_by_seed_end_as_one_without_a_kill(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.add(6)
    draw = random.Random(SEED)
    for _ in range(KILLS):
        before = min(shop.check())
        shop.add(max(0, before + 6 - shop.count))  # so that few runs end before they are killed
        seconds = draw.uniform(0, LONGEST_SECONDS)
        assert shop.run(seconds=seconds) in (-9, 0), shop.job_log()
    shop.finish()
