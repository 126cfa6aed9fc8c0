"""The memory of a compaction is set by an option, whatever the size of the bucket and however well its rows pack."""

import os
import sys
from pathlib import Path

import pytest

from bucketline.state.store.table.table import open_table
from tests.support.processes.compact_memory import Bodies, Taken, build, compact_apart, random_bodies, repeated_bodies

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

ROWS = int(os.environ.get("BUCKETLINE_MEMORY_ROWS", "100000"))
TIMES = int(os.environ.get("BUCKETLINE_MEMORY_TIMES", "3"))
MIB = 1 << 20


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("bodies", [random_bodies, repeated_bodies])
def test_twenty_runs_of_rows_of_1_kib_compact_within_the_memory_that_is_set(bodies: Bodies, tmp_path: Path) -> None:
    small = compacted(tmp_path / "small", bodies, ROWS)
    large = compacted(tmp_path / "large", bodies, ROWS * TIMES)
    assert max(small.arrow_bytes, large.arrow_bytes) <= 256 * MIB
    # The process also holds keys in numpy, the codecs' windows, and what its allocator keeps for later.
    assert max(small.grown_bytes, large.grown_bytes) <= 420 * MIB
    # How much of what is free goes back to the system differs from run to run.
    assert large.grown_bytes <= 1.3 * max(small.grown_bytes, 256 * MIB), (small, large)


def compacted(path: Path, bodies: Bodies, rows: int) -> Taken:
    table = build(path, bodies, rows=rows)
    assert [f["level"] for f in table.files().to_pylist()].count(0) >= 20
    taken = compact_apart(table.path, "256 mb")
    done = open_table(table.path).files()
    assert set(done["level"].to_pylist()) == {5}
    assert sum(done["record_count"].to_pylist()) == rows
    return taken


def test_the_option_sets_what_a_compaction_takes(tmp_path: Path) -> None:
    little, much = (
        compact_apart(build(tmp_path / memory, repeated_bodies, rows=60_000).path, memory) for memory in ("48mb", "1gb")
    )
    assert little.arrow_bytes <= 150 * MIB
    assert 3 * little.arrow_bytes < 2 * much.arrow_bytes
