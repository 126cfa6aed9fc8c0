"""Times in texts, read as Java's DateTimeFormatter reads them; the expected values are what Java 17 answers."""

from datetime import UTC, datetime

import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.java_time import check_time_pattern, read_time


@pytest.mark.parametrize(
    ("text", "pattern", "wanted"),
    [
        ("2024-01-31", None, "2024-01-31T00:00:00"),
        ("2024-1-1 3:4:5.25", None, "2024-01-01T03:04:05.250000"),
        ("2024-13-01", None, "2025-01-01T00:00:00"),
        ("2024-02-30", None, "2024-03-01T00:00:00"),
        ("20240101", None, None),
        ("2024-01-01 10:00", None, None),
        ("2024-01-01T10:00:00", None, None),
        ("19723", None, None),
        ("20240101", "yyyyMMdd", "2024-01-01T00:00:00"),
        ("20240230", "yyyyMMdd", "2024-02-29T00:00:00"),
        ("20240132", "yyyyMMdd", None),
        ("20241301", "yyyyMMdd", None),
        ("2024010112", "yyyyMMddHH", "2024-01-01T12:00:00"),
        ("20240101 24:00", "yyyyMMdd HH:mm", "2024-01-02T00:00:00"),
        ("20240101 24:01", "yyyyMMdd HH:mm", None),
        ("24-1-2", "yy-M-d", "2024-01-02T00:00:00"),
        ("2024-01-01T03", "yyyy-MM-dd'T'HH", "2024-01-01T03:00:00"),
        ("202401", "yyyyMM", None),
        ("2024-01-01", "yyyy-MM-dd[ HH:mm:ss]", "2024-01-01T00:00:00"),
        ("2024-01-01 02:03:04", "yyyy-MM-dd[ HH:mm:ss]", "2024-01-01T02:03:04"),
        ("0000-01-01", "yyyy-MM-dd", None),
    ],
)
def test_a_time_is_read_as_java_reads_it(text: str, pattern: str | None, wanted: str | None) -> None:
    found = read_time(text, pattern)
    shown = None if found is None else datetime.fromtimestamp(found / 1000, UTC).replace(tzinfo=None)
    assert shown == (None if wanted is None else datetime.fromisoformat(wanted))


def test_years_beyond_those_of_python_are_counted() -> None:
    assert read_time("+12024-01-01", "yyyy-MM-dd") == 317_273_587_200_000
    assert read_time("0-1-1", None) == -62_167_219_200_000


@pytest.mark.parametrize("pattern", ["MMM", "yyyy-MM-dd G", "yyyy'", "yyyy]", "yyyyMMyyyy", "{yyyy}", "HH a"])
def test_a_pattern_that_is_not_supported_is_refused(pattern: str) -> None:
    with pytest.raises(OptionError, match="no valid pattern for times"):
        check_time_pattern(pattern)
