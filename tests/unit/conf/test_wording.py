"""How numbers are said in messages: one row, two rows, and no zero where nothing happened."""

import ast
import re
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.wording import age_text, counted, span
from bucketline.state.store.table.table import create_table
from bucketline.streaming.batch.progress import BatchReport

ROOT = Path(__file__).resolve().parents[3]
NO_COUNTS = {
    "form.value",
    "mode.value",
    "MAX_BLOCK_BYTES",
    "_MOST_DEPTH",
    "_WIDTH",
    "bucket_num",
    "fitting",
    "request.limit",
    "len(partitions):,",
    "found.partitions:,",
}
"""What stands before such a word and is never 1, or no number."""
COUNTED = r"rows|records|files|bytes|snapshots|buckets|partitions|batches|runs|levels|keys|tags|hashes|errors|warnings"


def test_a_number_and_its_word_agree() -> None:
    assert [counted(n, "row") for n in (0, 1, 2, 2000)] == ["0 rows", "1 row", "2 rows", "2,000 rows"]
    assert counted(2, "hash", "hashes") == "2 hashes"
    assert (span(3, 3, "snapshot"), span(3, 7, "snapshot")) == ("snapshot 3", "snapshots 3 to 7")
    assert (age_text(0), age_text(1), age_text(90)) == ("less than a second", "1 second", "90 seconds")


def _messages() -> list[tuple[str, str]]:
    """Every text with values in it, and where it is."""
    found = []
    for top in ("conf", "state", "streaming"):
        for path in sorted((ROOT / top).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    parts = [
                        v.value if isinstance(v, ast.Constant) else "{" + ast.unparse(v) + "}" for v in node.values
                    ]
                    found.append((f"{path.relative_to(ROOT)}:{node.lineno}", "".join(map(str, parts))))
    return found


def test_no_message_puts_a_plural_behind_a_number_that_may_be_one() -> None:
    wrong = [
        (place, found[0])
        for place, text in _messages()
        if (found := re.search(rf"\}} (?:{COUNTED})\b", text))
        and text[: found.start()].rpartition("{")[2].rstrip("}") not in NO_COUNTS
    ]
    assert [place for place, _ in wrong] == []


def _report(**changed: object) -> BatchReport:
    values: dict[str, object] = {
        "table": "/t",
        "batch_id": 3,
        "skipped": False,
        "snapshot_ids": (4,),
        "input_rows": 1,
        "stored_rows": 1,
        "stored_bytes": 1,
        "level_files": ((0, 1),),
        "compacted_files": 0,
        "compaction_dropped": False,
        "rejected_rows": 0,
        "expired_snapshots": 1,
        "spilled_bytes": 0,
        "behind_records": 1,
        "plan_seconds": 0.1,
        "task_seconds": 2.0,
        "commit_seconds": 0.1,
        "total_seconds": 2.2,
    }
    return BatchReport(**(values | changed))  # type: ignore[arg-type]


def test_the_line_of_a_small_batch_counts_right() -> None:
    line = _report().line()
    assert line.startswith("batch 3: 1 row in 2.20 s (0.5/s) | stored 1 row, 1 B | L0+1 | ")
    assert "1 record behind" in line and "expired 1 snapshot" in line and "compacted 0" not in line


def test_the_line_of_an_empty_batch_tells_no_rate() -> None:
    line = _report(input_rows=0, stored_rows=0, stored_bytes=0, level_files=()).line()
    assert line.startswith("batch 3: 0 rows in 2.20 s | stored nothing | no files | ")


def test_changes_since_a_later_snapshot_are_refused_in_the_order_of_time(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "id INT")
    with pytest.raises(OptionError, match=r"since is snapshot 77, which is newer .* the table has no snapshot"):
        table.to_arrow(changes_since=77)
    table.write(pa.table({"id": pa.array([1], pa.int32())}))
    with pytest.raises(
        OptionError, match=r"since is snapshot 77, which is newer than snapshot 1, .* give an older snapshot"
    ):
        table.to_arrow(changes_since=77)
    with pytest.raises(OptionError, match=r"has no snapshot 5; it has snapshot 1$"):
        table.to_arrow(snapshot=5)
    with pytest.raises(OptionError, match=r"it has no tags$"):
        table.to_arrow(snapshot="x")
