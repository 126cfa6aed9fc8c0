"""What queries need of their tables: SQLite gives the same rows over the columns and rows that are left."""

import random
import sqlite3
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketline.state.sql.narrowing import needed_columns, needed_rows
from bucketline.state.sql.parse import parse_statement
from bucketline.state.sql.statement import Query
from bucketline.state.types.columns_text import parse_columns

TABLES = {
    "t": parse_columns("id INT, v BIGINT, name STRING, note STRING"),
    "u": parse_columns("id INT, w BIGINT, name STRING, extra STRING"),
}


def needs(text: str) -> list[tuple[str, tuple[str, ...] | None, str | None]]:
    query = parse_statement(text)
    assert isinstance(query, Query)
    found = [(r, TABLES[r.name.table]) for r in query.relations]
    return [(r.name.table, needed_columns(query, r, f), needed_rows(query, r, f)) for r, f in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT v FROM t WHERE ID = 5 AND name LIKE 'a%'", [("t", ("id", "v", "name"), "(`id` = 5)")]),
        ("SELECT count(*) FROM t", [("t", ("id",), None)]),
        ("SELECT count(*) FROM t VERSION AS OF 3 WHERE v > -7", [("t", ("v",), "(`v` > -7)")]),
        ("SELECT * FROM t WHERE id IN (1, 2)", [("t", None, "(`id` IN (1, 2))")]),
        ("SELECT id FROM t WHERE v = 5 OR name = 'x'", [("t", ("id", "v", "name"), None)]),
        ("SELECT id FROM t WHERE v = '5' AND name = 5 AND id = 99999999999", [("t", ("id", "v", "name"), None)]),
        (
            "SELECT x.id FROM t x WHERE x.name = 'it''s' AND note IS NULL",
            [("t", ("id", "name", "note"), "(`name` = 'it''s')")],
        ),
        (
            "SELECT t.v FROM t JOIN u ON t.id = u.id WHERE u.w < 3 AND t.v > 1 AND extra = 'x'",
            [("t", ("id", "v"), "(`v` > 1)"), ("u", ("id", "w", "extra"), "(`w` < 3)")],
        ),
        (
            "SELECT t.v FROM t LEFT JOIN u ON t.id = u.id WHERE t.v = 1 AND u.w = 2",
            [("t", ("id", "v"), "(`v` = 1)"), ("u", ("id", "w"), None)],
        ),
        ("SELECT t.v FROM t FULL JOIN u USING (id) WHERE t.v = 1", [("t", ("id", "v"), None), ("u", ("id",), None)]),
        ("SELECT v FROM t NATURAL JOIN u WHERE t.v = 1", [("t", None, None), ("u", None, None)]),
        ("SELECT v, struct(*) FROM t", [("t", None, None)]),
        ("SELECT x.* FROM t x JOIN u y ON x.id = y.id", [("t", None, None), ("u", None, None)]),
        ("SELECT a FROM t AS x (a, b, c, d)", [("t", None, None)]),
        ("SELECT * FROM (SELECT id, v FROM t WHERE name = 'x') q", [("t", ("id", "v", "name"), "(`name` = 'x')")]),
        ("SELECT v FROM (SELECT * FROM t)", [("t", None, None)]),
        ("SELECT e FROM t LATERAL VIEW explode(split(name, ',')) x AS e WHERE id = 1", [("t", ("id", "name"), None)]),
        (
            "SELECT t.v FROM t, LATERAL (SELECT * FROM u WHERE u.id = t.id) q",
            [("t", ("id", "v"), None), ("u", None, None)],
        ),
        ("SELECT IDENTIFIER('na' || 'me') FROM t", [("t", None, None)]),
        ("SELECT name FROM t PIVOT (sum(v) FOR id IN (1, 2))", [("t", None, None)]),
        ("SELECT id FROM t TABLESAMPLE (10 PERCENT) WHERE v = 3", [("t", None, None)]),
        (
            "SELECT id FROM t UNION SELECT id FROM u WHERE w = 1",
            [("t", ("id",), None), ("u", ("id", "w"), "(`w` = 1)")],
        ),
        (
            "SELECT v FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id AND w = 1)",
            [("t", ("id", "v"), None), ("u", ("id", "w"), "(`w` = 1)")],
        ),
    ],
)
def test_a_query_reads_the_columns_and_rows_that_it_needs(
    text: str, expected: list[tuple[str, tuple[str, ...] | None, str | None]]
) -> None:
    assert needs(text) == expected


@pytest.fixture(scope="module")
def sqlite() -> Iterator[sqlite3.Connection]:
    connection, draw = sqlite3.connect(":memory:"), random.Random(5)
    for name, fields in TABLES.items():
        connection.execute(f"CREATE TABLE {name} ({', '.join(f.name for f in fields)})")
        for _ in range(12):
            row = [draw.choice([None, 1, 2, 3, 4]), draw.choice([None, 1, 2, 3]), draw.choice(["x", "y", None]), "n"]
            connection.execute(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", row)
    yield connection
    connection.close()


CONDITIONS = st.sampled_from(
    [
        "t.v = 2",
        "u.w > 1",
        "t.name = 'x'",
        "u.name IS NULL",
        "t.id IN (1, 2)",
        "u.id BETWEEN 1 AND 3",
        "t.v > u.w",
        "u.w IS NULL OR t.v = 1",
        "NOT (t.id = 1)",
        "t.id IN (SELECT id FROM u WHERE w = 2)",
    ]
)
QUERIES = st.builds(
    lambda shown, join, parts: f"SELECT {shown} FROM t {join} WHERE {' AND '.join(parts)}",
    st.sampled_from(["*", "t.*", "t.id, u.w", "count(*)", "u.extra, t.v", "count(t.name), max(u.id)"]),
    st.sampled_from(
        [
            ", u",
            "JOIN u ON t.id = u.id",
            "LEFT JOIN u ON t.id = u.id AND u.w = 1",
            "FULL OUTER JOIN u USING (id)",
            "RIGHT OUTER JOIN u ON u.name = t.name",
            "NATURAL JOIN u",
            "CROSS JOIN u",
            "LEFT JOIN (SELECT * FROM u WHERE w = 1) u ON u.id = t.v",
        ]
    ),
    st.lists(CONDITIONS, min_size=1, max_size=3),
)


@settings(max_examples=200, deadline=None)
@given(QUERIES)
def test_narrowed_tables_give_the_same_rows(sqlite: sqlite3.Connection, text: str) -> None:
    query = parse_statement(text)
    assert isinstance(query, Query)
    narrowed = query.text
    for relation in reversed(query.relations):
        fields = TABLES[relation.name.table]
        columns, condition = needed_columns(query, relation, fields), needed_rows(query, relation, fields)
        kept = "*" if columns is None else ", ".join(columns)
        source = f"(SELECT {kept} FROM {relation.name.table} WHERE {condition or 'true'})"
        alias = "" if relation.has_alias else f" AS {relation.name.table}"
        narrowed = f"{narrowed[: relation.start]}{source}{alias}{narrowed[relation.end :]}"
    whole, fewer = sqlite.execute(text).fetchall(), sqlite.execute(narrowed).fetchall()
    assert sorted(fewer, key=repr) == sorted(whole, key=repr)
