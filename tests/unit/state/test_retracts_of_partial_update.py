"""A delete that the merge engine has no rule for is refused when it comes: stored, it would let no merge pass."""

from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.bucket.intake import poison_reasons
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.table import Table, create_table

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int32()), ("g", pa.int32())])


def table(path: Path, **options: str) -> Table:
    named = {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    return create_table(
        str(path / "t"), COLUMNS, ("id",), options={"bucket": "1", "merge-engine": "partial-update", **named}
    )


def rows(*kinds: int) -> pa.Table:
    count = len(kinds)
    found = pa.table({"id": range(count), "v": range(count), "g": range(count)}, schema=pa.schema(list(COLUMNS)))
    return found.append_column("_row_kind", pa.array(kinds, pa.int8()))


@pytest.mark.parametrize("kind", [1, 3])
def test_a_lone_retract_is_refused_and_nothing_is_written(tmp_path: Path, kind: int) -> None:
    found = table(tmp_path)
    found.write(rows(0))
    with pytest.raises(SchemaMismatchError, match="partial-update takes no -D and -U rows as it is"):
        found.write(rows(2, kind))
    assert found.snapshots().num_rows == 1 and found.to_arrow().num_rows == 1


def test_it_is_a_bad_record_of_a_stream(tmp_path: Path) -> None:
    reasons = poison_reasons(rows(0, 3, 1, 2), table(tmp_path).table_schema)
    assert reasons is not None
    assert [r is None for r in reasons.to_pylist()] == [True, False, False, True]


@pytest.mark.parametrize(
    "options",
    [
        {"ignore_delete": "true"},
        {"partial_update__remove_record_on_delete": "true", "ignore_update_before": "true"},
        {"fields__g__sequence_group": "v"},
    ],
)
def test_a_table_with_a_rule_for_it_takes_it(tmp_path: Path, options: dict[str, str]) -> None:
    found = table(tmp_path, **options)
    assert poison_reasons(rows(0, 3, 1), found.table_schema) is None
    found.write(rows(0, 3, 1))
    assert found.to_arrow().num_rows >= 1


def test_before_images_that_are_dropped_anyway_do_no_harm(tmp_path: Path) -> None:
    found = table(tmp_path, ignore_update_before="true")
    assert poison_reasons(rows(0, 1), found.table_schema) is None
    found.write(rows(0, 1))
    assert found.to_arrow()["id"].to_pylist() == [0]
