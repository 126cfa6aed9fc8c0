"""Spark's offsets log in both of its versions, as Spark 4.0.5, 4.2.1 and 4.3.0 write it."""

import json
import random

import pytest

from bucketline.state.errors import CorruptFileError, UnsupportedTableError
from bucketline.streaming.batch.identity import batch_digest
from bucketline.streaming.batch.inputs.offsets_log import aligned, batch_time_ms, parse_offsets, records_behind

HEAD = '{"batchWatermarkMs":0,"batchTimestampMs":1795309526298,"conf":{}}'


def log(version: str, *lines: str) -> str:
    return "\n".join((version, HEAD, *lines))


def test_the_first_line_says_when_the_batch_was_begun() -> None:
    assert batch_time_ms(log("v1", "-")) == batch_time_ms(log("v2")) == 1_795_309_526_298
    assert batch_time_ms('v1\n{"conf":{}}\n-') is batch_time_ms("v1\nnone") is None


def test_version_1_has_a_line_for_each_source_in_their_order() -> None:
    found = parse_offsets(log("v1", '{"orders":{"0":5}}', "-", '{"logOffset":3}', "7"), "offsets/0")
    assert found == {"0": {"orders": {"0": 5}}, "1": None, "2": {"logOffset": 3}, "3": 7}


def test_version_2_names_the_source_of_each_line_whatever_their_order() -> None:
    lines = [f'{i}:{{"logOffset":{i}}}' for i in range(12)]
    random.Random(7).shuffle(lines)
    found = parse_offsets(log("v2", *lines), "offsets/0")
    assert list(found.items()) == [(str(i), {"logOffset": i}) for i in range(12)]


def test_a_batch_has_the_same_digest_in_both_versions() -> None:
    offsets = ['{"a":{"0":5,"1":6}}', "-", '{"b":{"0":1}}']
    one = parse_offsets(log("v1", *offsets), "offsets/1")
    two = parse_offsets(log("v2", *(f"{i}:{o}" for i, o in reversed(list(enumerate(offsets))))), "offsets/1")
    digests = {batch_digest(None, list(found.values()), [None] * 3) for found in (one, two)}
    assert one == two and len(digests) == 1


def test_named_sources_come_in_the_order_of_their_names_and_keep_colons_in_their_offsets() -> None:
    found = parse_offsets(log("v2", 'zebra:{"t":{"0":1}}', "mid:9", 'apple:{"at":"12:30:00"}'), "offsets/4")
    assert list(found.items()) == [("apple", {"at": "12:30:00"}), ("mid", 9), ("zebra", {"t": {"0": 1}})]


def test_a_source_that_a_query_gains_has_no_start() -> None:
    before = parse_offsets(log("v2", 'b:{"t":{"0":1}}'), "offsets/4")
    assert aligned(before, ["a", "b"]) == [None, {"t": {"0": 1}}]
    assert aligned(None, ["a", "b"]) is None


def test_an_offset_that_is_no_json_counts_as_the_text_it_is() -> None:
    text = "snapshot 7\u2028of main"
    assert parse_offsets(log("v1", text), "offsets/0") == {"0": text}
    assert parse_offsets(log("v2", f"0:{text}"), "offsets/0") == {"0": text}


@pytest.mark.parametrize("text", ["v3\n{}\n0:{}", "{}\n{}"])
def test_a_version_that_is_not_known_is_refused_with_the_remedy(text: str) -> None:
    with pytest.raises(
        UnsupportedTableError, match=r"the offsets log ck/offsets/3 has version .* use a newer bucketline"
    ):
        parse_offsets(text, "ck/offsets/3")


@pytest.mark.parametrize("text", ["", "v", "v1", "v1\n"])
def test_a_log_that_was_not_written_to_its_end_is_told_with_the_remedy(text: str) -> None:
    with pytest.raises(CorruptFileError, match=r"ck/offsets/3 is empty or cut short: .* --reset-identity"):
        parse_offsets(text, "ck/offsets/3")


def test_a_line_of_version_2_without_a_source_is_refused() -> None:
    with pytest.raises(UnsupportedTableError, match="is no line of Spark's offsets log"):
        parse_offsets(log("v2", "7"), "ck/offsets/3")


def test_records_behind_are_those_of_the_source_with_the_same_topics() -> None:
    latest = [{"zebra": {"0": 10}}, {"apple": {"0": 100}, "fresh": {"0": 4}}]
    end = parse_offsets(log("v2", 'x:{"apple":{"0":90}}', 'y:{"zebra":{"0":9}}'), "offsets/0")
    assert records_behind(latest, list(end.values())) == 10 + 0 + 1
    assert records_behind(latest, [{"logOffset": 3}]) is None
    assert records_behind([{"shard": {"at": "TRIM_HORIZON"}}], [{"shard": {"at": "TRIM_HORIZON"}}]) is None
    assert records_behind([json.loads("7")], [{"zebra": {"0": 9}}]) is None
