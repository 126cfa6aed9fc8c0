"""Dates and times outside of the years 1 to 9999, which Python cannot hold, in SQL statements without Spark."""

from pathlib import Path

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError

DAY_S = 86_400
YEAR_0 = -719_528
"""The day 0000-01-01, counted from 1970-01-01."""
YEAR_10000 = 2_932_897
"""The day 10000-01-01, counted from 1970-01-01."""


def _sql(root: Path, text: str) -> pa.Table:
    result = bl.sql(None, text, warehouse=str(root))
    assert isinstance(result, pa.Table)
    return result


@pytest.mark.parametrize(("digits", "per_second"), [(0, 1_000), (3, 1_000), (6, 1_000_000)])
def test_statements_store_compare_and_remove_a_time_of_the_year_0(tmp_path: Path, digits: int, per_second: int) -> None:
    _sql(
        tmp_path,
        f"CREATE TABLE t (id INT NOT NULL, x TIMESTAMP({digits}), z TIMESTAMP_LTZ({digits}), PRIMARY KEY (id) NOT "
        "ENFORCED) WITH ('bucket' = '1')",
    )
    _sql(tmp_path, "INSERT INTO t VALUES (1, TIMESTAMP '0000-01-01 00:00:00', '0000-01-01 00:00:00Z'), (2, NULL, NULL)")
    _sql(tmp_path, "UPDATE t SET x = (SELECT min(x) FROM t), z = (SELECT min(z) FROM t) WHERE id = 2")
    rows = _sql(tmp_path, "SELECT x, z FROM t WHERE x < TIMESTAMP '0000-01-01 00:00:01'")
    for column in rows.columns:
        assert column.cast(pa.int64()).to_pylist() == [YEAR_0 * DAY_S * per_second] * 2
    _sql(tmp_path, "DELETE FROM t WHERE id = 1 AND x IN (SELECT min(x) FROM t)")
    assert _sql(tmp_path, "SELECT id FROM t")["id"].to_pylist() == [2]
    _sql(tmp_path, "DELETE FROM t WHERE z IN (SELECT min(z) FROM t)")
    assert _sql(tmp_path, "SELECT id FROM t").num_rows == 0


def test_values_of_a_query_may_be_of_such_years(tmp_path: Path) -> None:
    assert _sql(tmp_path, "SELECT * FROM VALUES (DATE '0000-01-01')")["col1"].cast(pa.int32()).to_pylist() == [YEAR_0]


def test_a_year_that_no_literal_has_is_refused_where_a_query_finds_it(tmp_path: Path) -> None:
    table = bl.create_table(str(tmp_path / "default.db" / "t"), "id INT NOT NULL, x TIMESTAMP(6), d DATE", ["id"])
    day = pa.array([YEAR_10000], pa.int32()).cast(pa.date32())
    table.write(pa.table({"id": pa.array([1], pa.int32()), "x": day.cast(pa.timestamp("us")), "d": day}))
    for column in ("x", "d"):
        with pytest.raises(OptionError, match=f"'10000-01-01.*' is no value of column '{column}'"):
            _sql(tmp_path, f"DELETE FROM t WHERE {column} IN (SELECT {column} FROM t)")
    assert table.to_arrow().num_rows == 1
