"""Job files that are small and mean much, are deep, refer to themselves, or hold numbers of thousands of digits: an
error of one line, at once."""

import time
from pathlib import Path

import pytest

from bucketline.conf.durations import timedelta_of
from bucketline.conf.errors import OptionError
from bucketline.conf.job import RecordFormat, SourceConfig, parse_trigger
from bucketline.conf.option import UNLIMITED, parse_count, parse_duration, parse_int, parse_size
from bucketline.conf.resolve import load_job, read_settings
from bucketline.conf.sources.kafka_client import kafka_client
from bucketline.conf.sources.source_options import source_options
from bucketline.conf.table.table_options import HONOURED

DIGITS = "9" * 5000
NINE = ", ".join


def _aliases_of_aliases() -> str:
    lines = ["a0: &a0 {x: 1, y: 2}"]
    lines += [f"a{i}: &a{i} {{{NINE(f'k{j}: *a{i - 1}' for j in range(9))}}}" for i in range(1, 9)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (_aliases_of_aliases(), "with its aliases expanded"),
        (f"a: &a '{'x' * 100_000}'\nb: [{NINE(['*a'] * 20_000)}]", "with its aliases expanded"),
        ("a: &a {b: *a}", "an alias contains itself"),
        ("a: &a [*a]", "must be a list of strings"),
        ("a: " + "[" * 5000 + "]" * 5000, "nested more than"),
        ("a: " + "{a: " * 5000 + "1" + "}" * 5000, "nested more than"),
        ("a: " + "{a: " * 30 + "1" + "}" * 30, "nested more than"),
        ("".join(" " * i + "a:\n" for i in range(2000)), "nested more than"),
        ("- " * 5000 + "a", "nested more than"),
    ],
)
def test_a_small_file_that_means_much_is_refused_at_once(text: str, says: str) -> None:
    began = time.process_time()
    with pytest.raises(OptionError, match=says) as refused:
        read_settings(text, name="job.yaml")
    assert len(refused.value.message) < 300 and "\n" not in refused.value.message
    # CPU, so that a busy machine does not matter: it is seconds at most, and was a minute and more, with gigabytes.
    assert time.process_time() - began < 20


def test_aliases_are_read_as_what_they_name() -> None:
    settings = read_settings("a: &a {x: 1, y: [p, q]}\nb: {c: *a, d: *a}", name="job.yaml")
    assert {key: setting.text for key, setting in settings.items()} == {
        "a.x": "1",
        "a.y": "p,q",
        "b.c.x": "1",
        "b.c.y": "p,q",
        "b.d.x": "1",
        "b.d.y": "p,q",
    }


def test_a_file_that_is_no_job_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"a: 1\n" * 300_000)
    with pytest.raises(OptionError, match="larger than 1 MiB"):
        load_job(str(path))
    with pytest.raises(OptionError, match="larger than 1 MiB"):
        load_job("/dev/zero")
    path.write_bytes(b"\xff")
    with pytest.raises(OptionError, match="cannot read the file"):
        load_job(str(path))


@pytest.mark.parametrize("digits", [DIGITS, "9" * 4000, "9" * 30])
def test_a_number_of_too_many_digits_is_refused_by_its_option(digits: str) -> None:
    for parse in (parse_int, parse_count, parse_size, parse_duration):
        with pytest.raises(OptionError, match="64 bits"):
            parse(digits)
    for unit in ("ms", "s", "d"):
        with pytest.raises(OptionError, match="must be 'availableNow' or an interval"):
            parse_trigger(f"{digits} {unit}")
    for option in HONOURED.values():
        for text in (digits, f"{digits} s", f"{digits} mb", f"truncate({digits})", f"{digits}:zstd"):
            try:
                option.find({option.key: text})
            except OptionError as e:
                assert "\n" not in e.message, option.key


def test_the_largest_numbers_are_those_of_64_bits() -> None:
    assert parse_int(str(UNLIMITED)) == UNLIMITED and parse_int(str(-UNLIMITED - 1)) == -UNLIMITED - 1
    assert parse_size(str(UNLIMITED)) == UNLIMITED and parse_duration("unlimited") == UNLIMITED
    assert parse_duration("106751991167 d") == 106_751_991_167 * 86_400_000
    for text in ("106751991168 d", "9223372036854775808"):
        with pytest.raises(OptionError, match="64 bits"):
            parse_duration(text)
    with pytest.raises(OptionError, match="64 bits"):
        parse_size("9007199254740992 kb")
    assert timedelta_of(86_400_000).days == 1
    with pytest.raises(OptionError, match="longer than 999,999,999 days"):
        timedelta_of(UNLIMITED)


@pytest.mark.parametrize("assigned", ["x", "[1]", '{"a": 1}', '{"a": ["0"]}', '{"a": [-1]}', "[" * 100_000])
def test_partitions_that_are_no_lists_of_numbers_are_refused(assigned: str) -> None:
    options = {"kafka.bootstrap.servers": "h:1", "assign": assigned}
    with pytest.raises(OptionError, match=r"is no JSON object of topics and their partitions") as refused:
        source_options(SourceConfig("kafka", options, RecordFormat.JSON))
    assert len(refused.value.message) < 400


def test_a_number_that_only_kafka_reads_may_be_long() -> None:
    assert not [o for o in kafka_client({"kafka.fetch.max.bytes": DIGITS}).obstacles if "is below" in o]
