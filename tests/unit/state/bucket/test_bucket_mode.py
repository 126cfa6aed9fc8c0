"""Bucket modes and bucket keys as table options and keys decide them."""

import re
from pathlib import Path

import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.bucket.mode import BucketMode, bucket_keys, bucket_mode, total_buckets
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.logical import DataField, DataType, TypeRoot, parse_type

ROOT = Path(__file__).parents[4]
_NESTED = DataType(TypeRoot.ARRAY, element=parse_type("INT"))


def _schema(primary: str = "", partition: str = "", **options: str) -> TableSchema:
    fields = tuple(DataField(i, name, parse_type("INT")) for i, name in enumerate(("a", "b", "dt")))
    return TableSchema(
        id=0,
        fields=(*fields, DataField(3, "list", _NESTED)),
        highest_field_id=3,
        primary_keys=tuple(primary.split()),
        partition_keys=tuple(partition.split()),
        options={k.replace("_", "-"): v for k, v in options.items()},
    )


@pytest.mark.parametrize(
    ("schema", "mode", "total"),
    [
        (_schema("a", bucket="4"), BucketMode.FIXED, 4),
        (_schema("a"), BucketMode.DYNAMIC, -1),
        (_schema("dt a", "dt", bucket="-1"), BucketMode.DYNAMIC, -1),
        (_schema("a", "dt"), BucketMode.CROSS_PARTITION, -1),
        (_schema("a b", "b dt"), BucketMode.CROSS_PARTITION, -1),
        (_schema("a", "dt", bucket="-2"), BucketMode.POSTPONE, -2),
        (_schema(bucket="3", bucket_key="a"), BucketMode.FIXED, 3),
        (_schema(), BucketMode.UNAWARE, -1),
    ],
)
def test_keys_and_the_bucket_option_decide_the_mode(schema, mode, total) -> None:
    assert bucket_mode(schema) is mode
    assert total_buckets(schema) == total


@pytest.mark.parametrize(
    "schema",
    [
        _schema("a", bucket="0"),
        _schema("a", bucket="-3"),
        _schema(bucket="-2"),
        _schema("a", bucket="four"),
        _schema("a", bucket="2147483648"),
        _schema("a", bucket="1_000"),
    ],
)
def test_a_bucket_option_that_means_nothing_is_refused(schema) -> None:
    with pytest.raises(OptionError) as caught:
        bucket_mode(schema)
    assert caught.value.fields["key"] == "bucket"


@pytest.mark.parametrize(
    ("schema", "keys"),
    [
        (_schema("b dt a", "dt", bucket="4"), ("b", "a")),
        (_schema("b dt a", "dt", bucket="4", bucket_key="a"), ("a",)),
        (_schema("b a", bucket="4", bucket_key="a,b"), ("a", "b")),
        (_schema("b a", bucket="-2", bucket_key="a"), ("a",)),
        (_schema("b dt", "dt"), ("b",)),
        (_schema(bucket="4", bucket_key="b"), ("b",)),
        (_schema(), ()),
    ],
)
def test_bucket_keys_are_the_option_or_the_trimmed_primary_key(schema, keys) -> None:
    assert bucket_keys(schema) == keys


@pytest.mark.parametrize(
    "schema",
    [
        _schema(bucket="4"),
        _schema("a", bucket_key="a"),
        _schema(bucket_key="a"),
        _schema("a", bucket="4", bucket_key="b"),
        _schema("a b", bucket="4", bucket_key="a, b"),
        _schema("a dt", "dt", bucket="4", bucket_key="dt"),
        _schema(bucket="4", bucket_key="list"),
        _schema(bucket="4", bucket_key=""),
    ],
    ids=["missing", "dynamic", "unaware", "not in the key", "blank", "partition", "nested", "empty"],
)
def test_a_bucket_key_that_cannot_be_one_is_refused(schema) -> None:
    with pytest.raises(OptionError) as caught:
        bucket_keys(schema)
    assert caught.value.fields["key"] == "bucket-key"


def test_a_primary_key_of_partition_columns_only_is_refused() -> None:
    with pytest.raises(UnsupportedTableError):
        bucket_keys(_schema("dt", "dt", bucket="4"))


def test_only_the_mode_itself_and_the_factory_of_writers_know_the_modes_apart() -> None:
    """Others ask what a mode does, so that a new one is added in these two modules and one of its own."""
    naming = {
        str(path.relative_to(ROOT))
        for top in ("conf", "state", "streaming")
        for path in (ROOT / top).rglob("*.py")
        if re.search(r"BucketMode\.[A-Z]", path.read_text(encoding="utf-8"))
    }
    assert naming == {"state/bucket/mode.py", "state/store/write/modes.py"}
