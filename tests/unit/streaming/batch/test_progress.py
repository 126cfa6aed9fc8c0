"""The line a batch leaves behind, and how many records wait after it."""

import json
from dataclasses import replace

from bucketline.streaming.batch.inputs.offsets_log import records_behind
from bucketline.streaming.batch.progress import BatchReport, as_json

REPORT = BatchReport(
    table="/w/t",
    batch_id=7,
    skipped=False,
    snapshot_ids=(12, 13),
    input_rows=5000,
    stored_rows=4000,
    stored_bytes=3 << 20,
    level_files=((0, 4), (5, 1)),
    compacted_files=6,
    compaction_dropped=False,
    rejected_rows=0,
    expired_snapshots=0,
    spilled_bytes=0,
    behind_records=None,
    plan_seconds=0.1,
    task_seconds=1.5,
    commit_seconds=0.4,
    total_seconds=2.0,
)


def test_the_line_tells_rows_files_levels_times_and_snapshots() -> None:
    line = REPORT.line()
    for told in ("batch 7: 5,000 rows in 2.00 s (2,500/s)", "stored 4,000 rows, 3.0 MiB", "L0+4 L5+1, compacted 6"):
        assert told in line
    assert "plan 0.10 tasks 1.50 commit 0.40 s" in line and "snapshot 12-13" in line
    assert "behind" not in line and "rejected" not in line and "postponed" not in line


def test_the_line_tells_what_is_out_of_the_ordinary() -> None:
    unusual = replace(REPORT, behind_records=1200, rejected_rows=3, expired_snapshots=2, compaction_dropped=True)
    line = unusual.line()
    for told in (
        "1,200 records behind",
        "rejected 3",
        "expired 2 snapshots",
        "the compaction conflicted with another commit",
    ):
        assert told in line
    unmet = replace(REPORT, unexpected_rows=(("positive", 1200), ("whole", 3)))
    assert "did not meet expectations: positive 1,200, whole 3" in unmet.line()
    waiting = replace(REPORT, postponed_rows=12345, postponed_seconds=7300)
    assert "12,345 rows postponed, for up to 2 hours" in waiting.line()
    hidden = replace(REPORT, hidden_rows=12345, hidden_seconds=7300)
    assert "12,345 rows committed but not readable yet, for up to 2 hours" in hidden.line()
    skipped = replace(REPORT, skipped=True, compacted_files=0)
    assert skipped.line() == "batch 7: already in the table, nothing left to do"
    assert json.loads(as_json(unusual))["behind_records"] == 1200


def test_records_behind_are_counted_for_kafka_sources_only() -> None:
    latest = [{"a": {"0": 10, "1": 7}}, None]
    assert records_behind(latest, [{"a": {"0": 4, "1": 7}}, {"logOffset": 3}]) == 6
    assert records_behind(latest, [{"a": {"0": 12, "1": 7}}, {"logOffset": 3}]) == 0
    assert records_behind([{"logOffset": 9}], [{"logOffset": 3}]) is None
    assert records_behind([], [{"a": {"0": 4}}]) is None
