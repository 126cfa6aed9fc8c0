"""What Paimon asks of columns, keys and options together; new tables and changes keep it, `doctor` looks for it."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.conf.table.index_options import rename_indexed

_COLUMNS = (
    "k INT, p STRING, s BIGINT, a INT, d DECIMAL(10,2), t STRING, r ARRAY<INT>, m MAP<STRING, INT>, n MAP<INT, INT>, "
    "e DECIMAL(19,2), x TIMESTAMP(7), y MAP<STRING, TIMESTAMP_LTZ(9)>"
)
_FIXED = {"bucket": "1"}

BROKEN: tuple[tuple[Mapping[str, str], str, str], ...] = (
    ({"scan.mode": "nonsense"}, "scan.mode", "must be one of default, full, latest-full"),
    ({"scan.mode": "from-timestamp"}, "scan.mode", "needs exactly one of 'scan.timestamp-millis', 'scan.timestamp'"),
    ({"scan.mode": "from-snapshot"}, "scan.mode", "needs exactly one of .* has none of them"),
    ({"log.scan": "from-snapshot-full"}, "scan.mode", "needs exactly one of 'scan.snapshot-id'"),
    ({"scan.mode": "latest", "scan.snapshot-id": "1"}, "scan.snapshot-id", "by 'scan.mode' = 'latest'"),
    ({"scan.version": "1"}, "scan.version", "cannot be an option of a table"),
    ({"scan.version": "1", "scan.tag-name": "x"}, "scan.version", "cannot be an option of a table"),
    ({"scan.version": "x", "scan.snapshot-id": "1"}, "scan.version", "cannot be an option of a table"),
    ({"scan.version": "1", "scan.timestamp-millis": "1"}, "scan.version", "cannot be an option of a table"),
    ({"scan.version": "1", "scan.mode": "latest"}, "scan.version", "cannot be an option of a table"),
    ({"scan.snapshot-id": "1", "scan.tag-name": "x"}, "scan.tag-name", "has 'scan.snapshot-id' and 'scan.tag-name'"),
    ({"scan.timestamp-millis": "1", "scan.tag-name": "x"}, "scan.tag-name", "by 'scan.timestamp-millis'"),
    ({"incremental-to-auto-tag": "x"}, "incremental-to-auto-tag", "by 'scan.mode' = 'latest-full', the default"),
    ({"scan.fallback-branch": "b"}, "scan.fallback-branch", "because the branch 'b' does not exist"),
    ({"scan.primary-branch": "b"}, "scan.primary-branch", "because the branch 'b' does not exist"),
    ({"file-index.bitmap.columns": "a,gone"}, "file-index.bitmap.columns", "there is no column 'gone'"),
    (
        {"file-index.bitmaps.columns": "a"},
        "file-index.bitmaps.columns",
        "there is no index 'bitmaps'; did you mean 'bitmap'",
    ),
    (
        {"file-index.bsi.columns": "t"},
        "file-index.bsi.columns",
        "the index 'bsi' does not support column 't', which is STRING",
    ),
    ({"file-index.bloom-filter.columns": "d"}, "file-index.bloom-filter.columns", "does not support column 'd'"),
    ({"file-index.range-bitmap.columns": "e"}, "file-index.range-bitmap.columns", "does not support column 'e'"),
    ({"file-index.range-bitmap.columns": "x"}, "file-index.range-bitmap.columns", "does not support column 'x'"),
    ({"file-index.range-bitmap.columns": "y[k]"}, "file-index.range-bitmap.columns", "does not support column 'y'"),
    ({"file-index.bitmap.columns": "n[x]"}, "file-index.bitmap.columns", "only a MAP with string keys"),
    (
        {"file-index.bitmap.a.version": "1"},
        "file-index.bitmap.a.version",
        "add the column to that option, or remove this option",
    ),
    ({"fields.gone.anything": "1"}, "fields.gone.anything", "Field gone can not be found"),
    ({"sequence.field": "s", "fields.s.aggregate-function": "max"}, "fields.s.aggregate-function", "Should not define"),
    ({"rowkind.field": "a"}, "rowkind.field", "choose a STRING column"),
    ({"bucket": "-2", "file.compression": "lz4"}, "file.compression", "postponed rows are stored in Avro files"),
    ({"manifest-sort.enabled": "true"}, "manifest-sort.enabled", "non-partition table"),
)
SOUND: tuple[Mapping[str, str], ...] = (
    {"scan.mode": "full"},
    {"scan.mode": "incremental", "incremental-to-auto-tag": "x"},
    {"scan.mode": "from-snapshot-full", "scan.snapshot-id": "1"},
    {"scan.version": "1", "scan.snapshot-id": "1"},
    {"scan.version": "x", "scan.tag-name": "x"},
    {"scan.watermark": "1"},
    {"scan.creation-time-millis": "1"},
    {
        "file-index.bitmap.columns": "a, t",
        "file-index.bitmap.a.version": "1",
        "file-index.bloom-filter.columns": "m[x]",
    },
    {"file-index.range-bitmap.columns": "d", "file-index.bsi.columns": "e", "file-index.bitmap.columns": "x"},
    {"file-index.in-manifest-threshold": "1 kb", "file-index.read.enabled": "true"},
    {"fields.a,s.anything": "1", "fields.default-aggregate-function": "sum"},
)


def _create(path: Path, options: Mapping[str, str], *, partition: tuple[str, ...] = ()) -> bl.Table:
    return bl.create_table(str(path / "t"), _COLUMNS, ("k",), partition, {**_FIXED, **options})


def _break(table: bl.Table, options: Mapping[str, str]) -> bl.Table:
    """The table with options that an older release let it have."""
    path = Path(table.path, "schema", "schema-0")
    schema = json.loads(path.read_text())
    schema["options"].update(options)
    path.write_text(json.dumps(schema))
    return bl.open_table(table.path)


@pytest.mark.parametrize(("options", "key", "message"), BROKEN)
def test_what_paimon_refuses_is_refused_before_anything_is_written(
    tmp_path: Path, options: Mapping[str, str], key: str, message: str
) -> None:
    with pytest.raises(OptionError, match=message) as refused:
        _create(tmp_path, options)
    assert refused.value.key == key and not list(tmp_path.iterdir())
    sound = _create(tmp_path, {"bucket": "-2"} if "bucket" in options else {})
    with pytest.raises(OptionError, match=message):
        sound.set_options(options)
    assert sorted(p.name for p in Path(sound.path, "schema").iterdir()) == ["schema-0"]


@pytest.mark.parametrize("options", SOUND)
def test_what_paimon_takes_is_taken(tmp_path: Path, options: Mapping[str, str]) -> None:
    assert _create(tmp_path, options).doctor() == []


def test_sequence_fields_order_no_rows_that_move_between_partitions(tmp_path: Path) -> None:
    for bucket in ("1", "-1"):
        with pytest.raises(OptionError, match="cross partition update case"):
            _create(tmp_path, {"bucket": bucket, "sequence.field": "s"}, partition=("p",))


def test_sequence_numbers_need_a_primary_key(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="for non-primary-key table"):
        bl.create_table(str(tmp_path / "t"), _COLUMNS, options={"table-read.sequence-number.enabled": "true"})


@pytest.mark.parametrize(("options", "key", "message"), BROKEN)
def test_a_table_that_breaks_a_rule_opens_is_told_of_and_can_be_mended(
    tmp_path: Path, options: Mapping[str, str], key: str, message: str
) -> None:
    table = _break(_create(tmp_path, {"bucket": "-2"} if "bucket" in options else {}), options)
    (finding,) = {f.message for f in table.doctor() if f.rule == "schema"} or {""}
    assert "Paimon refuses the table: " in finding
    # What has nothing to do with it may change, and whatever mends it.
    grown = table.add_column("more", "INT")
    (again,) = [f.message for f in grown.doctor() if f.rule == "schema"]
    assert again.split(";")[0].split(", but")[0].split("one of k")[0] in finding
    mended = grown.unset_options(*(o for o in options if o != "bucket"))
    assert mended.doctor() == []


def test_of_two_broken_rules_one_can_be_mended_after_the_other(tmp_path: Path) -> None:
    broken = {
        "scan.version": "1",
        "file-index.bitmap.columns": "gone",
        "snapshot.num-retained.min": "0",
        "num-levels": "1",
    }
    table = _break(_create(tmp_path, {}), broken)
    for key in broken:
        table = table.unset_options(key)
    assert table.doctor() == []


def test_a_column_that_an_index_names_is_not_dropped_and_keeps_its_index_under_another_name(tmp_path: Path) -> None:
    table = _create(tmp_path, {"file-index.bitmap.columns": "t,a", "file-index.bitmap.a.version": "1"})
    with pytest.raises(OptionError, match=r"there is no column 'a'.*take the column out of the option"):
        table.drop_column("a")
    renamed = table.rename_column("a", "b")
    assert {k: v for k, v in renamed.options.items() if k.startswith("file-index.")} == {
        "file-index.bitmap.columns": "t,b",
        "file-index.bitmap.b.version": "1",
    }
    assert renamed.unset_options("file-index.bitmap.b.version", "file-index.bitmap.columns").drop_column("b")


def test_a_branch_is_named_once_it_is_there_and_stays_as_long_as_it_is_named(tmp_path: Path) -> None:
    table = _create(tmp_path, {})
    table.create_branch("b")
    for key in ("scan.fallback-branch", "scan.primary-branch"):
        named = table.refreshed().set_options({key: "b"})
        assert named.doctor() == []
        with pytest.raises(OptionError, match=f"the table reads it, as '{key}' says; unset that option first"):
            named.delete_branch("b")
        with pytest.raises(OptionError, match="cannot be set at the same time"):
            named.set_options({"scan.fallback-branch": "b", "scan.primary-branch": "b"})
        named.unset_options(key)
    assert table.delete_branch("b")


@pytest.mark.parametrize(
    ("given", "renamed"),
    [
        (("file-index.bitmap.columns", "m[x], a,b"), ("file-index.bitmap.columns", "z[x], a,b")),
        (("file-index.bitmap.m.version", "1"), ("file-index.bitmap.z.version", "1")),
        (("file-index.read.m", "1"), ("file-index.read.m", "1")),
        (("other.bitmap.m.version", "m"), ("other.bitmap.m.version", "m")),
    ],
)
def test_options_of_an_index_follow_a_rename(given: tuple[str, str], renamed: tuple[str, str]) -> None:
    assert rename_indexed(*given, "m", "z") == renamed
