"""What `doctor` says of a table where an expiry has died: the next expiry finishes it, so nothing is damaged."""

import shutil
from pathlib import Path

import pyarrow as pa

from bucketline.state.commit.replay import MARKER_TAG
from bucketline.state.store.doctor.examine import examine
from bucketline.state.store.doctor.finding import Severity
from bucketline.state.store.table.table import create_table, open_table
from tests.support.spark.tasks import killed_at
from tests.support.tables.examined import Waits
from tests.support.tables.worlds import handle_in


def test_an_expiry_that_died_leaves_no_error_and_the_next_one_leaves_nothing(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), pa.schema([pa.field("id", pa.int64(), nullable=False)]), ("id",))
    for i in range(4):
        table.write(pa.table({"id": [i]}))
    rules: set[str] = set()
    for at in range(1, 100):
        copy = tmp_path / f"copy-{at}"
        shutil.copytree(tmp_path / "t", copy)
        dying = open_table(str(copy))
        with killed_at(at, "before") as death:
            dying.expire_snapshots(retain_min=1, retain_max=1)
        findings = examine(handle_in(open_table(str(copy)), pause=Waits()))
        assert [f for f in findings if f.severity is Severity.ERROR] == [], at
        rules |= {f.rule for f in findings}
        open_table(str(copy)).expire_snapshots(retain_min=1, retain_max=1)
        # The hint may be too low: that costs readers a listing, and the next expiry that removes something mends it.
        assert [f.rule for f in examine(handle_in(open_table(str(copy)), pause=Waits()))] in ([], ["hint"])
        shutil.rmtree(copy)
        if not death.is_dead:
            break
    assert "half-expired" in rules


def test_a_stream_that_marked_its_snapshot_after_that_had_expired_is_no_error(tmp_path: Path) -> None:
    """Seed 700087 of the simulation: the stream had slept for two days between its commit and its marker."""
    table = create_table(str(tmp_path / "t"), pa.schema([pa.field("id", pa.int64(), nullable=False)]), ("id",))
    for i in range(3):
        table.write(pa.table({"id": [i]}))
    first = (tmp_path / "t" / "snapshot" / "snapshot-1").read_bytes()
    table.expire_snapshots(retain_min=1, retain_max=1)
    tags = tmp_path / "t" / "tag"
    tags.mkdir()
    (tags / f"tag-{MARKER_TAG}some-query").write_bytes(first)
    findings = examine(handle_in(open_table(table.path), pause=Waits()))
    assert [f for f in findings if f.severity is Severity.ERROR] == []
    (tags / "tag-some-other").write_bytes(first)
    findings = examine(handle_in(open_table(table.path), pause=Waits()))
    assert {f.rule for f in findings if f.severity is Severity.ERROR} == {"unreadable"}
