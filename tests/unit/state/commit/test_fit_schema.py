"""When a table that somebody else has made may take the place of the one that was to be made."""

import pytest

from bucketline.state.commit.widen import misfit
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.catalog.new_schema import plan_schema

WANTED = "id BIGINT NOT NULL, n INT, a ARRAY<INT>, r ROW<x INT, y STRING>, d DECIMAL(9, 2) NOT NULL"


def schema(columns: str, key: tuple[str, ...] = ("id",), partition: tuple[str, ...] = ()) -> TableSchema:
    return plan_schema(columns, key, partition, time_ms=0)


@pytest.mark.parametrize(
    "there",
    [
        WANTED,
        "id BIGINT NOT NULL, s STRING, d DECIMAL(12, 2), r ROW<y STRING, z INT, x BIGINT>, a ARRAY<BIGINT>, n BIGINT",
    ],
)
def test_a_table_with_equal_keys_whose_columns_hold_the_values_fits(there: str) -> None:
    assert misfit(schema(there), schema(WANTED)) is None


@pytest.mark.parametrize(
    ("there", "key", "partition", "why"),
    [
        (WANTED, ("id", "d"), (), r"its primary key is (id, d), and not (id)"),
        (WANTED, (), (), "its primary key is (), and not (id)"),
        (WANTED, ("id",), ("n",), "its partition is (n), and not ()"),
        (
            WANTED.replace("n INT", "n SMALLINT"),
            ("id",),
            (),
            "its column n is SMALLINT, which does not hold all values of INT",
        ),
        (WANTED.replace(", n INT", ""), ("id",), (), "it has no column n"),
        (WANTED.replace("x INT", "x STRING"), ("id",), (), "its column r is"),
        (WANTED.replace("ARRAY<INT>", "ARRAY<STRING>"), ("id",), (), "its column a is"),
        (WANTED.replace("n INT", "n INT NOT NULL"), ("id",), (), "its column n is NOT NULL"),
        (WANTED + ", more INT NOT NULL", ("id",), (), "its column more is NOT NULL"),
    ],
)
def test_another_table_does_not(there: str, key: tuple[str, ...], partition: tuple[str, ...], why: str) -> None:
    found = misfit(schema(there, key, partition), schema(WANTED))
    assert found is not None and found.startswith(why)
