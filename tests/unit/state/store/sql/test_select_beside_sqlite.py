"""SELECT without Spark against SQLite: random queries over one table give the same rows."""

import sqlite3
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketline as bl
from bucketline.state.store.table.table import Table

ROWS = [(k, [None, "a", "b", "c"][k % 4], [None, 3, -1, 3, 7][k % 5], k % 3) for k in range(23)]
COLUMNS = ("k", "g", "v", "w")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    path = tmp_path_factory.mktemp("select") / "t"
    made = bl.create_table(str(path), "k INT, g STRING, v INT, w INT", ["k"], options={"bucket": "2"})
    columns = zip(*ROWS, strict=True)
    made.write(pa.table({n: pa.array(c, f.type) for n, c, f in zip(COLUMNS, columns, made.schema, strict=True)}))
    return made


@pytest.fixture(scope="module")
def sqlite() -> sqlite3.Connection:
    found = sqlite3.connect(":memory:")
    found.execute("CREATE TABLE t (k INT, g TEXT, v INT, w INT)")
    found.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", ROWS)
    return found


def conditions() -> st.SearchStrategy[str]:
    plain = st.one_of(
        st.builds(
            "{} {} {}".format,
            st.sampled_from(["k", "v", "w"]),
            st.sampled_from(["=", "<>", "<", ">="]),
            st.integers(-2, 9),
        ),
        st.builds("g {} '{}'".format, st.sampled_from(["=", ">", "LIKE"]), st.sampled_from(["a", "b", "%"])),
        st.sampled_from(
            ["g IS NULL", "v IS NOT NULL", "v IN (3, 7)", "v NOT IN (3)", "k BETWEEN 4 AND 9", "k + v > w * 4", "v = w"]
        ),
    )
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            st.builds("NOT ({})".format, inner),
            st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner),
        ),
        max_leaves=4,
    )


@st.composite
def queries(draw: st.DrawFn) -> str:
    where = f" WHERE {draw(conditions())}" if draw(st.booleans()) else ""
    if draw(st.booleans()):
        keys = draw(st.lists(st.sampled_from(["g", "w"]), unique=True, max_size=2))
        aggregates = ["count(*)", "count(v)", "count(DISTINCT v)", "sum(k)", "min(v)", "max(g)"]
        chosen = draw(st.lists(st.sampled_from(aggregates), min_size=1, max_size=3, unique=True))
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"SELECT {', '.join([*keys, *chosen])} FROM t{where}{group}"
    shown = draw(
        st.lists(st.sampled_from(["k", "g", "v AS x", "w", "k + w", "7", "v * 2 AS d"]), min_size=1, max_size=4)
    )
    distinct = "DISTINCT " if draw(st.booleans()) else ""
    if distinct:
        return f"SELECT DISTINCT {', '.join(shown)} FROM t{where}"
    order = draw(st.lists(st.sampled_from(["g", "v DESC", "w", "g DESC", "1"]), max_size=2))
    cut = draw(st.sampled_from(["", " LIMIT 5", " LIMIT 3 OFFSET 2", " LIMIT 0"]))
    return f"SELECT {', '.join(shown)} FROM t{where} ORDER BY {', '.join([*order, 'k'])}{cut}"


@settings(max_examples=60, deadline=None)
@given(query=queries())
def test_random_queries_give_the_rows_of_sqlite(table: Table, sqlite: sqlite3.Connection, query: str) -> None:
    expected = [tuple(row) for row in sqlite.execute(query).fetchall()]
    found = bl.sql(None, query.replace("FROM t", f"FROM `{table.path}`"))
    rows = [tuple(row) for row in zip(*(c.to_pylist() for c in found.columns), strict=True)]
    if "ORDER BY" not in query:
        expected, rows = in_any_order(expected), in_any_order(rows)
    assert rows == expected


def in_any_order(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=repr)
