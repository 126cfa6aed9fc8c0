"""What a job starts its own Spark with."""

import pytest

from bucketline.streaming.job.session import awaited_packages, settings_of_own

BARS = "spark.ui.showConsoleProgress"


@pytest.mark.parametrize(
    ("arguments", "defaults", "set_by_us"),
    [
        (["--master", "local[2]", "pyspark-shell"], {}, True),
        (["--conf", f"{BARS}=true", "pyspark-shell"], {}, False),
        ([f"--conf={BARS}=true", "pyspark-shell"], {}, False),
        (["pyspark-shell"], {BARS: "true"}, False),
    ],
)
def test_sparks_progress_bars_are_off_unless_somebody_chose_them(
    arguments: list[str], defaults: dict[str, str], set_by_us: bool
) -> None:
    assert settings_of_own(arguments, defaults) == ({BARS: "false"} if set_by_us else {})


@pytest.mark.parametrize(
    ("text", "packages"),
    [
        ("--packages a:b:1,c:d:2 pyspark-shell", "a:b:1,c:d:2"),
        ("--conf spark.jars.packages=a:b:1 x", "a:b:1"),
        ("", None),
    ],
)
def test_packages_that_spark_fetches_first_are_known(text: str, packages: str | None) -> None:
    assert awaited_packages(text.split()) == packages
