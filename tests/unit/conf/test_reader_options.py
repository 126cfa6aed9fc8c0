"""The options of the Spark reader: found whatever their case, refused with the nearest name."""

import pickle
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option
from bucketline.conf.reader_options import READER_OPTIONS, check_batch, check_stream, reader_options
from tests.support.pages.readme import DOCS, section

PAGE = DOCS / "spark-reader.md"
TABLE = {"path": "/w/s.db/t"}


def refused(given: dict[str, str], check: Any = check_batch) -> str:
    with pytest.raises(OptionError) as caught:
        check(reader_options({**TABLE, **given}))
    return caught.value.message


def test_names_are_found_in_lower_case_as_spark_hands_them_over() -> None:
    found = reader_options(
        {
            **TABLE,
            "read.stream.maxfilespertrigger": "7",
            "s3.access-key": "me",
            "s3.secret-key": "hidden",
            "postpone.merge-on-read": "true",
            "source.split.target-size": "1 mb",
        }
    )
    assert found.limits == (7, None, None)
    assert found.storage == {"s3.access-key": "me", "s3.secret-key": "hidden"}
    assert found.opening == {"postpone.merge-on-read": "true"}
    assert found.split_bytes({"source.split.open-file-cost": "2 mb"}) == (1 << 20, 2 << 20)


def test_printing_options_shows_no_secret_and_a_copy_is_equal() -> None:
    found = reader_options({**TABLE, "s3.access-key": "me", "s3.secret-key": "hidden"})
    assert "hidden" not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    assert "did you mean 'columns'?" in refused({"colums": "a"})
    assert "did you mean 'changes-since'?" in refused({"change-since": "a"})
    assert "did you mean 's3.secret-key'?" in refused({"s3.secret-kee": "a"})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"snapshot": "1", "tag": "t"}, "both say which snapshot"),
        ({"snapshot": "1", "scan.tag-name": "t"}, "both say which snapshot"),
        ({"changes-until": "3"}, "needs 'changes-since'"),
        ({"changes-since": "3", "tag": "t"}, "use 'changes-until'"),
        ({"changes-since": "3", "read-optimized": "true"}, "exclude each other"),
        ({"scan.mode": "latest"}, "option of streams"),
        ({"consumer-id": "c"}, "option of streams"),
        ({"read.changelog": "true"}, "need 'changes-since'"),
        ({"columns": "a,_change_type"}, "need 'changes-since'"),
        ({"timestamp": "yesterday"}, "must be milliseconds since 1970"),
        ({"read.stream.maxRowsPerTrigger": "0"}, "must be at least 1"),
        ({"source.split.target-size": "much"}, "source.split.target-size"),
    ],
)
def test_what_does_not_fit_together_is_refused(given: dict[str, str], words: str) -> None:
    assert words in refused(given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"changes-since": "1"}, "option of batch reads"),
        ({"read-optimized": "true"}, "option of batch reads"),
        ({"scan.mode": "latest", "snapshot": "3"}, "set one"),
        ({"snapshot": "3"}, "needs 'scan.mode' = from-snapshot"),
        ({"timestamp": "3"}, "needs 'scan.mode' = from-timestamp"),
        ({"scan.mode": "from-snapshot"}, "needs 'snapshot' or 'tag'"),
        ({"scan.mode": "from-snapshot-full", "timestamp": "5"}, "needs 'snapshot' or 'tag'"),
        ({"scan.mode": "from-timestamp", "snapshot": "5"}, "needs 'timestamp'"),
        ({"scan.mode": "incremental"}, "must be one of"),
        ({"consumer.ignore-progress": "true"}, "needs 'consumer-id'"),
        ({"consumer-id": "a/b"}, "file"),
    ],
)
def test_what_a_stream_cannot_do_is_refused(given: dict[str, str], words: str) -> None:
    assert words in refused(given, check_stream)


def test_a_time_is_in_utc_unless_it_has_an_offset() -> None:
    at = int(datetime(2026, 1, 31, 12, 30, tzinfo=UTC).timestamp() * 1000)
    for text in ("2026-01-31 12:30:00", "2026-01-31T13:30:00+01:00", str(at)):
        found = reader_options({**TABLE, "timestamp": text})
        assert (found.time_ms, found.opening) == (at, {"scan.timestamp-millis": str(at)})


def test_versions_are_ids_or_tags() -> None:
    assert reader_options({**TABLE, "changes-since": "7"}).changes_since == 7
    assert reader_options({**TABLE, "changes-since": "v7"}).changes_since == "v7"


def test_the_page_lists_each_option_and_no_other() -> None:
    listed = re.findall(r"^\| `([^`]+)` \|", section("Options", PAGE), re.MULTILINE)
    assert listed == list(READER_OPTIONS)


@pytest.mark.parametrize("option", READER_OPTIONS.values(), ids=lambda o: o.key)
def test_the_page_lists_each_default(option: Option[Any]) -> None:
    row = re.search(rf"^\| `{re.escape(option.key)}` \| (.+?) \| .+ \|$", section("Options", PAGE), re.MULTILINE)
    assert row is not None
    assert row[1] == (f"`{option.shown()}`" if option.default is not None else "–")
