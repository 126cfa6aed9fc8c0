"""Reading of option texts."""

from enum import Enum

import pytest

from bucketline.conf.durations import DURATION_KEYS, check_given_durations
from bucketline.conf.errors import OptionError
from bucketline.conf.job import parse_trigger
from bucketline.conf.option import (
    UNLIMITED,
    Option,
    nearest,
    parse_bool,
    parse_choice,
    parse_count,
    parse_duration,
    parse_enum,
    parse_float,
    parse_given_duration,
    parse_int,
    parse_map,
    parse_names,
    parse_size,
)
from bucketline.conf.resolve import read_settings, resolve_job
from bucketline.conf.table.fixed_options import check_job_options
from bucketline.conf.table.table_options import HONOURED, KNOWN_KEYS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("128 mb", 128 << 20),
        ("1gb", 1 << 30),
        ("500 b", 500),
        ("42", 42),
        (" 64 KB ", 64 << 10),
        ("2 tb", 2 << 40),
        ("3 mebibytes", 3 << 20),
        ("unlimited", UNLIMITED),
    ],
)
def test_sizes_are_read_in_powers_of_1024(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10 s", 10_000),
        ("1 h", 3_600_000),
        ("30 min", 1_800_000),
        ("2d", 172_800_000),
        ("15", 15),
        ("10 ms", 10),
        ("1500 us", 1),
        ("30 seconds", 30_000),
    ],
)
def test_durations_are_read_as_milliseconds(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize("text", ["", "mb", "-1 mb", "1.5 gb", "1 pb", "1 mb 2"])
def test_a_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(OptionError):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "s", "-1 s", "1 week"])
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(OptionError):
        parse_duration(text)


def test_words_and_numbers_are_read_strictly() -> None:
    assert (parse_bool("TRUE"), parse_bool("false")) == (True, False)
    assert parse_int(" -2 ") == -2
    assert parse_count("unlimited") == UNLIMITED
    assert parse_float("0.7") == 0.7
    assert parse_names("a, b ,c") == ("a", "b", "c")
    assert parse_map("0:avro, 5:parquet") == {"0": "avro", "5": "parquet"}
    for parse, text in [
        (parse_bool, "yes"),
        (parse_int, "1.0"),
        (parse_count, "-1"),
        (parse_float, "nan"),
        (parse_names, "a,,b"),
        (parse_map, "a"),
    ]:
        with pytest.raises(OptionError):
            parse(text)


def test_a_choice_ignores_case_and_takes_underscores_for_dashes() -> None:
    parse = parse_choice("full-compaction", "none")
    assert parse("FULL_COMPACTION") == "full-compaction"
    with pytest.raises(OptionError, match="did you mean 'none'"):
        parse("nonee")


def test_an_enum_is_read_by_its_value() -> None:
    class Colour(Enum):
        DARK_RED = "dark-red"

    assert parse_enum(Colour)("DARK_RED") is Colour.DARK_RED


def test_an_option_reads_its_value_then_its_fallback_then_its_default() -> None:
    option = Option("write-only", parse_bool, False, "no compaction", ("write.compaction-skip",))
    assert option.get({}) is False
    assert option.get({"write.compaction-skip": "true"}) is True
    assert option.get({"write.compaction-skip": "true", "write-only": "false"}) is False
    assert option.is_set({"write.compaction-skip": "true"}) and not option.is_set({})
    with pytest.raises(OptionError, match="'write-only' = 'maybe'") as caught:
        option.get({"write-only": "maybe"})
    assert caught.value.fields["key"] == "write-only"


def test_a_required_option_that_is_missing_is_named() -> None:
    with pytest.raises(OptionError, match="'path' is required"):
        Option("path", str, None, "where").get({})


def test_the_nearest_known_word_is_found() -> None:
    assert nearest("bucke", ["bucket", "bucket-key"]) == "bucket"
    assert nearest("zzzzz", ["bucket"]) is None


@pytest.mark.parametrize("text", ["5", " 0 ", "86400000"])
def test_a_given_duration_needs_a_unit(text: str) -> None:
    with pytest.raises(OptionError, match=f"{text.strip()} has no unit; write '{text.strip()} ms'"):
        parse_given_duration(text)


def test_every_option_that_is_read_as_a_duration_is_known_as_one() -> None:
    read = {key for key, option in HONOURED.items() if option.parse is parse_duration}
    assert read and read <= DURATION_KEYS
    assert set(KNOWN_KEYS) >= DURATION_KEYS
    with pytest.raises(OptionError, match=r"'tag.default-time-retained' = '7' in the job's options has no unit"):
        check_given_durations({"tag.default-time-retained": "7", "bucket": "7"}, origin="the job's options")


def test_a_job_says_the_units_of_its_durations() -> None:
    with pytest.raises(OptionError, match="30 has no unit"):
        parse_trigger("30")
    with pytest.raises(OptionError, match=r"'commit.timeout' = '30' in job.yaml has no unit"):
        check_job_options({"commit.timeout": "30"}, {"commit.timeout": "30"}, origin="job.yaml")
    with pytest.raises(OptionError, match=r"'snapshot.time-retained' = '1' in create.options has no unit"):
        resolve_job(
            read_settings(
                "table: t\ncheckpoint: c\nsource: {format: rate}\n"
                "create: {schema: id INT, options: {snapshot.time-retained: 1}}",
                name="job.yaml",
            )
        )
