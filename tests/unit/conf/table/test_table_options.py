"""Which table options may be created and written with."""

import re
from collections import Counter
from pathlib import Path

import pytest

import bucketline.conf
from bucketline.conf.errors import OptionError
from bucketline.conf.option import UNLIMITED, Option
from bucketline.conf.table import (
    bucket_options,
    changelog_options,
    compaction_options,
    expiry_options,
    external_options,
    file_options,
    index_options,
    memory_options,
    merge_options,
    own_options,
    read_options,
    table_options,
    tag_options,
)
from bucketline.conf.table.compaction_options import num_levels, stop_trigger
from bucketline.conf.table.memory_options import BOUNDED
from bucketline.conf.table.merge_options import IGNORE_DELETE
from bucketline.conf.table.new_table import check_new_table, lift_keys
from bucketline.conf.table.other_options import HARMLESS, HARMLESS_PREFIXES, RESTRICTED
from bucketline.conf.table.table_options import (
    BUCKET_KEY,
    COMMIT_TIMEOUT,
    HONOURED,
    check_write_options,
    target_file_size,
)

FIXED = {"bucket": "2"}


def refused(options: dict[str, str], primary_key: tuple[str, ...] = ("id",)) -> OptionError:
    with pytest.raises(OptionError) as caught:
        check_write_options(options, primary_key, ())
    return caught.value


@pytest.mark.parametrize(
    ("options", "primary_key", "key", "text"),
    [
        (
            {"bucket": "-1", "bucket-key": "id"},
            (),
            "bucket-key",
            "Cannot define 'bucket-key' with bucket = -1, please remove the 'bucket-key' setting "
            "or specify a bucket number.",
        ),
        (
            {"bucket-key": "id"},
            ("id",),
            "bucket-key",
            "Cannot define 'bucket-key' with bucket = -1, please remove the 'bucket-key' setting "
            "or specify a bucket number.",
        ),
        ({"bucket": "2"}, (), "bucket-key", "You should define a 'bucket-key' for bucketed append mode."),
        ({"bucket": "0"}, ("id",), "bucket", "The number of buckets needs to be greater than 0."),
        ({"bucket": "-2"}, (), "bucket", "The number of buckets needs to be greater than 0."),
        ({"bucket": "-3"}, ("id",), "bucket", "The number of buckets needs to be greater than 0."),
        (
            {"full-compaction.delta-commits": "1"},
            (),
            "full-compaction.delta-commits",
            "AppendOnlyTable of unaware or dynamic bucket does not support 'full-compaction.delta-commits'",
        ),
    ],
)
def test_forbidden_bucket_settings_are_refused_in_paimons_words(
    options: dict[str, str], primary_key: tuple[str, ...], key: str, text: str
) -> None:
    error = refused(options, primary_key)
    assert (error.message, error.fields["key"]) == (text, key)


def test_a_sequence_field_with_cross_partition_upserts_is_refused_in_paimons_words() -> None:
    with pytest.raises(OptionError) as caught:
        check_write_options({"sequence.field": "v"}, ("pk",), ("pt",))
    assert caught.value.message == (
        "You can not use sequence.field in cross partition update case (Primary key constraint '[pk]' "
        "not include all partition fields '[pt]')."
    )


def test_deletes_cannot_be_ignored_where_keys_move_between_partitions() -> None:
    with pytest.raises(OptionError, match="the key would be in both; filter deletes out of the input") as caught:
        check_write_options({"ignore-delete": "true"}, ("pk",), ("pt",))
    assert caught.value.fields["key"] == "ignore-delete"
    check_write_options({"ignore-delete": "true", "merge-engine": "partial-update"}, ("pk",), ("pt",))
    check_write_options({"ignore-delete": "true"}, ("pk", "pt"), ("pt",))


@pytest.mark.parametrize(
    "options",
    [
        {"bucket": "1", "changelog-producer": "everything"},
        {"bucket": "1", "changelog-file.format": "lance"},
        {"bucket": "1", "changelog-file.stats-mode": "some"},
        {"bucket": "1", "file.format": "lance"},
        {"bucket": "1", "file.format.per.level": "0:avro,5:csv"},
        {"bucket": "1", "file.format.per.level": "top:avro"},
        {"bucket": "1", "file.compression": "brotli"},
        {"bucket": "1", "file.compression": "gzip", "file.format": "orc"},
        {"bucket": "1", "file.compression": "lz4", "file.format.per.level": "0:avro"},
        {"bucket": "1", "file.compression.per.level": "0:zlib"},
        {"bucket": "1", "metadata.stats-mode": "truncate(0)"},
        {"bucket": "1", "metadata.stats-mode.per.level": "0:most"},
        {"bucket": "1", "fields.v.stats-mode": "some"},
        {"bucket": "1", "pk-clustering-override": "true"},
        {"bucket": "1", "chain-table.enabled": "true"},
        {"bucket": "1", "record-level.expire-time": "1 d"},
        {"bucket": "1", "partition.idle-time-to-done": "1 d"},
        {"bucket": "1", "changelog.num-retained.min": "0"},
        {"bucket": "1", "changelog.num-retained.min": "3", "changelog.num-retained.max": "2"},
        {"bucket": "1", "changelog.num-retained.min": "12", "snapshot.num-retained.max": "11"},
    ],
    ids=str,
)
def test_what_this_release_cannot_write_is_refused_and_named(options: dict[str, str]) -> None:
    error = refused(options)
    key = str(error.fields["key"])
    assert key in error.message and key in {"bucket", *options}


@pytest.mark.parametrize(
    ("options", "key", "text"),
    [
        (
            {"merge-engine": "first-row", "changelog-producer": "input"},
            "changelog-producer",
            "Only support 'none' and 'lookup' changelog-producer on FIRST_ROW merge engine",
        ),
        (
            {"merge-engine": "first-row", "deletion-vectors.enabled": "true"},
            "deletion-vectors.enabled",
            "First row merge engine does not need deletion vectors because there is no deletion of old data in this "
            "merge engine.",
        ),
        (
            {"merge-engine": "first-row", "sequence.field": "v"},
            "sequence.field",
            "Do not support using sequence field on FIRST_ROW merge engine.",
        ),
        (
            {"changelog-producer": "full-compaction", "deletion-vectors.enabled": "true"},
            "deletion-vectors.enabled",
            "Deletion vectors mode is only supported for NONE/INPUT/LOOKUP changelog producer now.",
        ),
        (
            {"changelog-producer": "lookup", "streaming-read-overwrite": "true"},
            "streaming-read-overwrite",
            "Cannot set streaming-read-overwrite to true when changelog producer is full-compaction or lookup because "
            "it will read duplicated changes.",
        ),
    ],
)
def test_changelogs_that_cannot_be_are_refused_in_paimons_words(options: dict[str, str], key: str, text: str) -> None:
    error = refused({"bucket": "1", **options})
    assert (error.message, error.fields["key"]) == (text, key)


def test_changelogs_need_a_key_and_no_second_schedule() -> None:
    assert refused({"bucket": "-1", "changelog-producer": "input"}, ()).fields["key"] == "changelog-producer"
    assert refused({"streaming-read-overwrite": "true"}, ()).fields["key"] == "streaming-read-overwrite"
    both = {"bucket": "1", "changelog-producer": "lookup", "full-compaction.delta-commits": "2"}
    assert refused(both).fields["key"] == "full-compaction.delta-commits"
    both = {"bucket": "1", "changelog-producer": "full-compaction", "force-lookup": "true"}
    assert refused(both).fields["key"] == "force-lookup"


@pytest.mark.parametrize(
    "options",
    [
        FIXED,
        {},
        {"bucket": "-2", "postpone.default-bucket-num": "4"},
        {"bucket": "-1", "dynamic-bucket.target-row-num": "10", "dynamic-bucket.max-buckets": "-1"},
        {**FIXED, "merge-engine": "DEDUPLICATE", "changelog-producer": "none", "deletion-vectors.enabled": "false"},
        {**FIXED, "merge-engine": "first_row", "changelog-producer": "lookup", "lookup-compact": "gentle"},
        {**FIXED, "deletion-vectors.enabled": "true", "changelog-producer": "input", "lookup-wait": "false"},
        {**FIXED, "changelog-producer": "full-compaction", "full-compaction.delta-commits": "3"},
        {**FIXED, "changelog-file.format": "avro", "changelog-file.compression": "deflate", "force-lookup": "true"},
        {**FIXED, "merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        {**FIXED, "merge-engine": "AGGREGATION", "aggregation.remove-record-on-delete": "true"},
        {**FIXED, "sort-engine": "min-heap", "page-size": "32 kb", "lookup.cache-rows": "10"},
        {**FIXED, "fields.v.aggregate-function": "sum", "file-index.bloom-filter.columns": "v"},
        {**FIXED, "write.compaction-skip": "true", "file.format": "PARQUET", "dynamic-bucket.target-row-num": "3"},
        {**FIXED, "file.format.per.level": "0:parquet", "source.split.target-size": "128m"},
        {**FIXED, "file.format": "orc", "file.compression": "zlib", "orc.timestamp-ltz.legacy.type": "false"},
        {**FIXED, "file.format.per.level": "0:avro,5:ORC", "file.compression.per.level": "0:deflate,5:none"},
        {**FIXED, "metadata.stats-mode": "FULL", "metadata.stats-mode.per.level": "0:none,5:Truncate(8)"},
        {**FIXED, "fields.v.stats-mode": "counts", "data-file.thin-mode": "true", "file.compression.zstd-level": "9"},
    ],
    ids=str,
)
def test_harmless_and_default_settings_are_accepted(options: dict[str, str]) -> None:
    check_write_options(options, ("id",), ())


def test_append_tables_are_accepted_with_and_without_buckets() -> None:
    check_write_options({}, (), ())
    check_write_options({"bucket": "2", "bucket-key": "id"}, (), ())


def test_an_unknown_key_is_refused_and_the_nearest_named() -> None:
    assert refused({"bucket": "1", "num-sorted-run.compaction-triger": "3"}).message == (
        "unknown table option 'num-sorted-run.compaction-triger'; did you mean 'num-sorted-run.compaction-trigger'?"
    )
    assert "did you mean" not in refused({"bucket": "1", "snapshot.qqqq": "3"}).message
    check_write_options({"bucket": "1", "qqqq": "3"}, ("id",), ())
    for key in ("", "snapshot b", "1x", "bukcet"):
        assert refused({"bucket": "1", key: "3"}).key == key


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("write-buffer-size", "lots"),
        ("sort-spill-threshold", "lots"),
        ("write-buffer-spillable", "maybe"),
        ("write-only", "yes"),
        ("num-levels", "1"),
        ("num-sorted-run.compaction-trigger", "0"),
        ("snapshot.num-retained.min", "0"),
        ("snapshot.num-retained.max", "3"),
        ("full-compaction.delta-commits", "0"),
        ("target-file-row-num", "0"),
        ("dynamic-bucket.initial-buckets", "0"),
        ("dynamic-bucket.assigner-parallelism", "0"),
        ("postpone.default-bucket-num", "0"),
        ("postpone.target-row-num-per-bucket", "0"),
        ("postpone.target-size-per-bucket", "0 b"),
    ],
)
def test_values_that_make_no_sense_are_refused(key: str, text: str) -> None:
    message = refused({**FIXED, key: text}).message
    assert key in message


COLUMNS = ("id", "dt", "v", "tags")


@pytest.mark.parametrize(
    ("options", "primary_key", "partition", "columns", "text"),
    [
        ({}, ("nope",), (), COLUMNS, "should include all primary key fields [nope]"),
        ({}, ("id",), ("nope",), COLUMNS, "should include all partition fields [nope]"),
        ({}, ("id", "id"), (), COLUMNS, "must not contain duplicate columns"),
        ({}, ("tags",), (), COLUMNS, "must be an atomic type"),
        ({}, ("dt",), ("dt",), COLUMNS, "this will result in only one record in a partition"),
        ({}, ("id",), (), (*COLUMNS, "_KEY_id"), "cannot start with [_KEY_]"),
        ({}, ("id",), (), (*COLUMNS, "_VALUE_KIND"), "Field name[_VALUE_KIND]"),
        ({}, ("id",), (), (*COLUMNS, "v"), "duplicate fields. Found: [v]"),
        ({"bucket-key": "id, v"}, ("id", "v"), (), COLUMNS, "names are not trimmed"),
        ({"bucket-key": "dt"}, ("id", "dt"), ("dt",), COLUMNS, "should not in partition keys [dt]"),
        ({"bucket-key": "v"}, ("id",), (), COLUMNS, "Primary keys [id] should contain all bucket keys [v]."),
        ({"bucket-key": "tags"}, (), (), COLUMNS, "nested type can not in bucket-key"),
        ({"sequence.field": "nope"}, ("id",), (), COLUMNS, "Sequence field: 'nope' can not be found"),
        ({"sequence.field": "v,id,v"}, ("id",), (), COLUMNS, "Sequence field 'v' is defined repeatedly."),
        ({"rowkind.field": "nope"}, ("id",), (), COLUMNS, "Rowkind field: 'nope' can not be found"),
    ],
)
def test_a_new_table_that_paimon_would_refuse_is_refused(
    options: dict[str, str],
    primary_key: tuple[str, ...],
    partition: tuple[str, ...],
    columns: tuple[str, ...],
    text: str,
) -> None:
    with pytest.raises(OptionError) as caught:
        check_new_table(
            FIXED | options, columns=columns, nested={"tags"}, primary_key=primary_key, partition_keys=partition
        )
    assert text in caught.value.message


def test_a_sound_new_table_is_accepted() -> None:
    check_new_table(
        FIXED | {"bucket-key": "id", "sequence.field": "v", "rowkind.field": "v"},
        columns=COLUMNS,
        nested={"tags"},
        primary_key=("id", "dt"),
        partition_keys=("dt",),
    )


def test_keys_declared_as_options_are_lifted_and_never_declared_twice() -> None:
    assert lift_keys({"primary-key": "id,dt", "partition": "dt", "bucket": "1"}, (), ()) == (
        {"bucket": "1"},
        ("id", "dt"),
        ("dt",),
    )
    assert lift_keys({}, ["id"], ["dt"]) == ({}, ("id",), ("dt",))
    with pytest.raises(OptionError, match="Cannot define primary key on DDL and table options at the same time"):
        lift_keys({"primary-key": "id"}, ["id"], ())


def test_defaults_that_depend_on_others_follow_paimon() -> None:
    assert (stop_trigger({}), num_levels({})) == (8, 6)
    low = {"num-sorted-run.compaction-trigger": "3", "num-sorted-run.stop-trigger": "1"}
    assert (stop_trigger(low), num_levels(low)) == (3, 4)
    assert target_file_size({}, has_primary_key=True) == 128 << 20
    assert target_file_size({}, has_primary_key=False) == 256 << 20
    assert target_file_size({"target-file-size": "1 mb"}, has_primary_key=True) == 1 << 20
    assert COMMIT_TIMEOUT.get({}) == UNLIMITED
    assert IGNORE_DELETE.get({"deduplicate.ignore-delete": "true"}) is True
    assert BUCKET_KEY.find({"bucket-key": "a, b"}) == ("a", " b")


def test_every_option_that_is_honoured_is_read_somewhere() -> None:
    root = Path(bucketline.conf.__file__).parents[1]
    folders = [root / name for name in ("conf", "state", "streaming")]
    texts = [p.read_text("utf-8") for folder in folders for p in folder.rglob("*.py")]
    words = Counter(word for text in texts for word in re.findall(r'\w+|"[a-z0-9.-]+"', text))
    topics = [merge_options, compaction_options, file_options, bucket_options]
    topics += [
        changelog_options,
        memory_options,
        expiry_options,
        tag_options,
        external_options,
        read_options,
        index_options,
    ]
    members = [found for module in (table_options, own_options, *topics) for found in vars(module).items()]
    names = {id(option): name for name, option in members if isinstance(option, Option)}
    for option in HONOURED.values():
        assert words[names[id(option)]] > 1 or words[f'"{option.key}"'] > 1, f"nothing reads {option.key}"


def test_options_of_features_that_are_not_written_are_known_by_name() -> None:
    known = (
        "blob-descriptor.source-table",
        "data-evolution.row-sidecar.enabled",
        "data-evolution.merge-into.file-pruning",
    )
    assert all(key in HARMLESS for key in (*known, "global-index.enabled", "blob-view.resolve.enabled"))
    assert RESTRICTED["branch-merge.enabled"].accepted == ("false",)


@pytest.mark.parametrize(
    "key", ["compaction.early-max.file-num", "log.consistency", "lookup.local-file-type", "write-manifest-cache"]
)
def test_an_option_that_paimon_has_given_up_does_not_stop_writes(key: str) -> None:
    check_write_options({"bucket": "1", key: "x"}, ["k"], [])


def test_tables_whose_commits_make_metadata_of_iceberg_are_refused_by_name() -> None:
    error = refused({"bucket": "1", "metadata.iceberg.storage": "hadoop-catalog", "metadata.iceberg.table": "t"})
    assert error.fields["key"] == "metadata.iceberg.storage" and "Iceberg" in str(error)
    check_write_options({"bucket": "1", "metadata.iceberg.storage": "disabled"}, ["k"], [])


def test_every_key_has_one_standing_and_a_meaning() -> None:
    assert not HARMLESS.keys() & RESTRICTED.keys()
    assert not HARMLESS.keys() & HONOURED.keys()
    assert not RESTRICTED.keys() & HONOURED.keys()
    assert not BOUNDED.keys() & {**HARMLESS, **RESTRICTED, **HONOURED}.keys()
    assert all(option.doc for option in HONOURED.values())
    assert all(found.reason and found.remedy for found in RESTRICTED.values())
    assert all(prefix.endswith(".") for prefix in HARMLESS_PREFIXES)
