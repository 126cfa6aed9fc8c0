"""Settings are read from texts once, when they are asked for, and have types."""

import pickle

import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option
from bucketline.conf.table import table_settings
from bucketline.conf.table.changelog_options import ChangelogProducer
from bucketline.conf.table.choices import FileFormat, NullKeys, SortOrder
from bucketline.conf.table.merge_options import MergeEngine
from bucketline.conf.table.settings import OptionalValue, OptionValue, Settings
from bucketline.conf.table.table_settings import TableSettings
from bucketline.state.format.json_files.schema_json import TableSchema


def test_words_become_members_of_enums() -> None:
    settings = TableSettings(
        {
            "merge-engine": "PARTIAL_UPDATE",
            "changelog-producer": "lookup",
            "file.format": "ORC",
            "file.format.per.level": "0:avro",
            "sequence.field": "a,b",
            "sequence.field.sort-order": "descending",
            "fields.v.nested-key-null-strategy": "ignore",
        }
    )
    assert settings.merge.engine is MergeEngine.PARTIAL_UPDATE
    assert settings.changelog.producer is ChangelogProducer.LOOKUP
    assert [settings.files.format_of(level) for level in (0, 5)] == [FileFormat.AVRO, FileFormat.ORC]
    assert (settings.merge.sequence_fields, settings.merge.sequence_order) == (("a", "b"), SortOrder.DESCENDING)
    assert settings.columns.parameters("v").null_keys is NullKeys.IGNORE


@pytest.mark.parametrize(
    ("key", "read", "allowed"),
    [
        ("merge-engine", lambda s: s.merge.engine, "deduplicate, partial-update, aggregation, first-row"),
        ("changelog-producer", lambda s: s.changelog.producer, "none, input, full-compaction, lookup"),
        ("bucket-function.type", lambda s: s.bucket.function, "default, mod, hive"),
        ("file.format", lambda s: s.files.format, "parquet, avro, orc"),
        ("sequence.field.sort-order", lambda s: s.merge.sequence_order, "ascending, descending"),
        ("lookup-compact", lambda s: s.compaction.lookup, "radical, gentle"),
        ("incremental-between-scan-mode", lambda s: s.reading.change_files, "auto, delta, changelog"),
        (
            "manifest.compression",
            lambda s: s.commit.manifest_codec,
            "zstd, zstandard, deflate, snappy, bzip2, null, none, zlib, gzip, lz4",
        ),
        ("fields.v.nested-key-null-strategy", lambda s: s.columns.parameters("v"), "merge, ignore, error"),
    ],
)
def test_a_word_that_is_none_is_refused_with_key_value_and_what_is_allowed(key, read, allowed) -> None:
    with pytest.raises(OptionError) as caught:
        read(TableSettings({key: "some"}))
    assert f"option '{key}' = 'some': must be one of {allowed}" in caught.value.message
    assert (caught.value.fields["key"], caught.value.fields["value"]) == (key, "some")


def test_an_option_is_read_once_for_all_who_ask() -> None:
    read: list[str] = []

    def parse(text: str) -> str:
        read.append(text)
        return text

    class Topic(Settings):
        word = OptionValue(Option("word", parse, "none", "a word"))
        other = OptionalValue(Option("other", parse, None, "another word"))

    topic = Topic({"word": "x"})
    assert (topic.word, topic.word, topic.other, topic.other) == ("x", "x", None, None)
    assert read == ["x"]


def test_what_is_not_asked_for_need_not_be_readable() -> None:
    settings = TableSettings({"snapshot.num-retained.min": "many", "snapshot.num-retained.max": "7"})
    assert settings.retention.snapshots_max == 7
    with pytest.raises(OptionError, match=r"snapshot\.num-retained\.min"):
        _ = settings.retention.snapshots_min


def test_settings_cannot_be_set() -> None:
    settings = TableSettings({})
    assert settings.merge.engine is MergeEngine.DEDUPLICATE
    with pytest.raises(AttributeError, match="engine cannot be set"):
        settings.merge.engine = MergeEngine.AGGREGATION  # type: ignore[misc, assignment]


def test_a_schema_carries_its_settings_to_tasks() -> None:
    schema = TableSchema(id=0, fields=(), highest_field_id=-1, options={"bucket": "3"})
    assert schema.settings.bucket.count == 3
    again = pickle.loads(pickle.dumps(schema))
    assert again == schema and again.settings.bucket.count == 3


def test_every_option_of_a_table_that_is_a_setting_is_one_setting() -> None:
    topics = [found for found in vars(table_settings).values() if isinstance(found, type)]
    keys = [m.option.key for t in topics for m in vars(t).values() if isinstance(m, OptionValue | OptionalValue)]
    assert len(keys) > 80 and len(keys) == len(set(keys))
