"""Statements as Paimon has them: defaults, fields inside of columns, queries in changes, replaced tables."""

import json
from collections import Counter
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path

import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.state.errors import TableNotFoundError, UnsupportedTableError
from bucketline.state.sql.parse import parse_script
from bucketline.state.sql.statement import TableReference
from bucketline.state.store.sql.run import run_statement
from bucketline.state.store.sql.session import SqlSession
from bucketline.state.store.table.table import Table
from tests.support.pages.sql_text import Run

DEFAULTS = (
    "CREATE TABLE t (a BIGINT, b STRING DEFAULT 'mine', c INT NOT NULL DEFAULT -5, d DATE DEFAULT DATE '2020-01-31', "
    "e ARRAY<STRING> DEFAULT ARRAY('x', 'y'), m MAP<STRING, INT> DEFAULT MAP('k', 1), "
    "s STRUCT<x: INT, y: STRING> DEFAULT STRUCT(42, 'in') COMMENT 'three', n DOUBLE DEFAULT NULL)"
)
FILLED = ("mine", -5, date(2020, 1, 31), ["x", "y"], [("k", 1)], {"x": 42, "y": "in"}, None)


def test_columns_that_a_statement_leaves_out_get_their_default(run: Run, tmp_path: Path) -> None:
    run(f"{DEFAULTS}; INSERT INTO t (a) VALUES (1); INSERT INTO t (a) SELECT 2")
    run("INSERT INTO t VALUES (3, DEFAULT, DEFAULT, NULL, DEFAULT, NULL, DEFAULT, DEFAULT)")
    assert run("SELECT * FROM t ORDER BY a") == [(at, *FILLED) for at in (1, 2, 3)]
    schema = json.loads((tmp_path / "default.db" / "t" / "schema" / "schema-0").read_text())
    assert [f.get("defaultValue") for f in schema["fields"]][1:4] == ["'mine'", "-5", "'2020-01-31'"]


def test_the_newest_partition_of_a_table_is_a_value_in_queries_and_conditions(run: Run) -> None:
    run(
        "CREATE TABLE t (k INT, p STRING, h INT) PARTITIONED BY (p, h);"
        "INSERT INTO t VALUES (1, '20250101', 1), (2, '20250102', 9), (3, '20250102', 10), (4, NULL, 1);"
        "CREATE TABLE n (k INT, p INT) PARTITIONED BY (p); CREATE TABLE u (k INT)"
    )
    assert run("SELECT sys.max_pt('t')") == ["20250102"]
    assert run("SELECT k FROM t VERSION AS OF 1 WHERE p = paimon.SYS.max_pt('default.t') AND h > 9") == [3]
    assert run("SELECT 'sys.max_pt(''u'')'") == ["sys.max_pt('u')"]
    for table, why in {"n": "n has no partition with data", "u": "u has no partition columns"}.items():
        with pytest.raises(OptionError, match=f"max_pt: {why}"):
            run(f"SELECT sys.max_pt('{table}')")
    run("INSERT INTO n VALUES (1, 9), (2, 10); INSERT INTO u SELECT k FROM n WHERE p = sys.max_pt('n')")
    assert run("SELECT k FROM u") == [2] and run("SELECT sys.max_pt('n')") == ["10"]
    run("DELETE FROM t WHERE p < sys.max_pt('t'); UPDATE t SET k = k + 10 WHERE p = sys.max_pt('t') AND h = 9")
    assert run("SELECT k FROM t ORDER BY k") == [3, 4, 12]


def test_a_table_like_a_branch_has_the_columns_of_the_branch(run: Run) -> None:
    run(
        "CREATE TABLE t (k INT) WITH ('bucket'='1','bucket-key'='k'); INSERT INTO t VALUES (1);"
        "CALL sys.create_branch('t', 'b'); ALTER TABLE t$branch_b ADD COLUMN extra STRING;"
        "CREATE TABLE u LIKE `t$branch_b`; INSERT INTO u VALUES (1, 'x')"
    )
    assert run("SELECT * FROM u") == [(1, "x")] and run("SHOW TBLPROPERTIES u ('bucket')") == [("bucket", "1")]
    assert "branch" not in run("SHOW CREATE TABLE u")[0]


def test_a_default_stays_in_what_shows_the_table_and_in_a_table_like_it(run: Run) -> None:
    run(f"{DEFAULTS}; CREATE TABLE u LIKE t")
    (shown,) = run("SHOW CREATE TABLE t")
    assert "b STRING DEFAULT 'mine'" in shown and "s ROW<x INT, y STRING> DEFAULT STRUCT(42, 'in') COMMENT" in shown
    assert "c INT NOT NULL DEFAULT -5" in shown and "n DOUBLE,\n" in shown.replace("\n)", ",\n")
    assert run("SHOW CREATE TABLE u")[0].splitlines()[1:] == shown.splitlines()[1:]
    run("DROP TABLE t")
    run(shown)
    assert run("SHOW CREATE TABLE t") == [shown]


def test_a_default_is_altered_and_dropped(run: Run) -> None:
    run(
        "CREATE TABLE t (a INT, b INT DEFAULT 2); INSERT INTO t (a) VALUES (1);"
        "ALTER TABLE t ALTER COLUMN B SET DEFAULT 3"
    )
    run("INSERT INTO t (a) VALUES (2); ALTER TABLE t ALTER COLUMN b DROP DEFAULT; INSERT INTO t (a) VALUES (3)")
    assert run("SELECT * FROM t ORDER BY a") == [(1, 2), (2, 3), (3, None)]
    with pytest.raises(UnsupportedTableError, match="column 'b' has the default value"):
        run("ALTER TABLE t ALTER COLUMN b SET DEFAULT 'x'")
    with pytest.raises(UnsupportedTableError, match="column 'b' has the default value"):
        run("CREATE TABLE u (b ARRAY<INT> DEFAULT ARRAY('x'))")


def test_default_and_null_in_updates_and_merges_are_the_default(run: Run) -> None:
    run("CREATE TABLE t (a INT, b INT DEFAULT 2, s STRUCT<x: INT> DEFAULT STRUCT(7))")
    run("INSERT INTO t VALUES (1, 10, NULL), (2, 20, NULL), (3, 30, struct(1)); UPDATE t SET b = DEFAULT WHERE a = 1")
    run("UPDATE t SET b = NULL WHERE a = 2")
    run(
        "MERGE INTO t USING (VALUES (3), (4)) AS v(k) ON t.a = v.k WHEN MATCHED THEN UPDATE SET s = DEFAULT "
        "WHEN NOT MATCHED THEN INSERT (a, s) VALUES (k, DEFAULT)"
    )
    assert run("SELECT * FROM t ORDER BY a") == [
        (1, 2, {"x": 7}),
        (2, 2, {"x": 7}),
        (3, 30, {"x": 7}),
        (4, 2, {"x": 7}),
    ]


@pytest.fixture
def nested(run: Run) -> Run:
    run("CREATE TABLE t (a INT, s STRUCT<c1: STRING, c2: STRUCT<x: BIGINT, y: INT>>, m MAP<STRING, INT>)")
    run("INSERT INTO t SELECT 1, named_struct('c1', 'a', 'c2', named_struct('x', 5, 'y', 6)), map('k', 1)")
    run("INSERT INTO t SELECT 2, NULL, NULL")
    return run


def test_fields_inside_of_columns_are_set_and_the_others_stay(nested: Run) -> None:
    nested("UPDATE t SET S.c2.x = t.s.c2.y + 1, t.s.c1 = 'b', m = map('j', a) WHERE s.c2.x = 5")
    assert nested("SELECT s, m, s.c2.x, t.s.c1 FROM t WHERE a = 1") == [
        ({"c1": "b", "c2": {"x": 7, "y": 6}}, [("j", 1)], 7, "b")
    ]
    nested("UPDATE t SET s.c1 = 'of null' WHERE a = 2")
    assert nested("SELECT s FROM t WHERE a = 2") == [{"c1": "of null", "c2": None}]
    nested("MERGE INTO t USING (SELECT 1 AS k, 'm' AS v) AS n ON t.a = n.k WHEN MATCHED THEN UPDATE SET t.s.c1 = n.v")
    assert nested("SELECT s.c1, s.c2 FROM t WHERE a = 1") == [("m", {"x": 7, "y": 6})]
    assert nested("DELETE FROM t WHERE s.c1 = 'm'; SELECT a FROM t") == [2]


@pytest.mark.parametrize(
    ("assignments", "says"),
    [
        ("s.c1 = 'a', s = NULL", "s is set twice"),
        ("s.c1 = 'a', S.C1 = 'b'", "s.c1 is set twice"),
        ("s.c3 = 1", "unknown column 's.c3'"),
        ("m.k = 1", "has no fields to set"),
        ("s.c1.x = 1", "has no fields to set"),
    ],
)
def test_fields_that_are_not_there_or_are_set_twice_are_refused(nested: Run, assignments: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        nested(f"UPDATE t SET {assignments}")


@pytest.mark.parametrize("key", ["", "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '1')"])
def test_queries_in_update_and_delete_run_before_the_change(run: Run, key: str) -> None:
    run(f"CREATE TABLE t (id INT, name STRING, v INT) {key}; CREATE TABLE s (k INT, d DATE, n STRING)")
    run("INSERT INTO t VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3), (4, NULL, 4), (5, 'e', 5)")
    run("INSERT INTO s VALUES (2, DATE '2020-01-01', 'x'); INSERT INTO s VALUES (4, NULL, 'it''s')")
    assert run("DELETE FROM t WHERE id > (SELECT max(k) FROM s); SELECT id FROM t ORDER BY 1") == [1, 2, 3, 4]
    run(
        "UPDATE t SET v = (SELECT max(k) FROM s) + id "
        "WHERE id NOT IN (SELECT k FROM s /*+ OPTIONS('scan.snapshot-id'='1') */)"
    )
    assert run("SELECT v FROM t ORDER BY id") == [5, 2, 7, 8]
    run("UPDATE t SET name = (SELECT n FROM s WHERE d IS NULL) WHERE EXISTS (SELECT * FROM s WHERE k = 2) AND id < 3")
    assert run("SELECT name FROM t ORDER BY id") == ["it's", "it's", "c", None]
    assert run("DELETE FROM t WHERE name IN (SELECT n FROM s WHERE k = 99); SELECT count(*) FROM t") == [4]
    assert run("DELETE FROM t WHERE id NOT IN (SELECT v FROM t WHERE v IS NULL); SELECT count(*) FROM t") == [0]


def test_a_replaced_table_is_empty_and_older_snapshots_stay(run: Run) -> None:
    run(
        "CREATE TABLE t (k INT, v STRING) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '2');"
        "INSERT INTO t VALUES (1, 'a')"
    )
    run("REPLACE TABLE t (k INT, n BIGINT) TBLPROPERTIES ('primary-key' = 'k', 'bucket' = '3')")
    assert run("SELECT count(*) FROM t") == [0] and run("SELECT * FROM t VERSION AS OF 1") == [(1, "a")]
    run("INSERT INTO t VALUES (1, 2), (3, 4)")
    assert run("SELECT * FROM t ORDER BY k") == [(1, 2), (3, 4)]
    run("CREATE OR REPLACE TABLE t AS SELECT k + 10 AS j, n FROM t WHERE k = 3; CREATE OR REPLACE TABLE u (a INT)")
    assert run("SELECT * FROM t") == [(13, 4)] and run("SELECT count(*) FROM u") == [0]
    for text, says in (
        ("REPLACE TABLE x (a INT)", "there is no table default.x; use CREATE OR REPLACE TABLE to create it"),
        ("REPLACE TABLE x AS SELECT 1 AS a", "there is no table default.x; use CREATE OR REPLACE TABLE to create it"),
        ("CREATE OR REPLACE TABLE t (a INT, p INT) PARTITIONED BY (p)", "change the partition columns from none to p"),
        ("REPLACE TABLE t (a INT) TBLPROPERTIES ('bucketx' = '1')", "bucketx"),
    ):
        with pytest.raises(OptionError, match=says):
            run(text)
    assert run("SELECT * FROM t") == [(13, 4)]
    run("REPLACE TABLE t AS SELECT j + 1 AS i FROM t")
    assert run("SELECT * FROM t") == [14]


def test_unions_ranges_and_names_in_brackets_are_queried_without_spark(run: Run) -> None:
    run("CREATE TABLE t (id BIGINT, d DOUBLE); INSERT INTO t SELECT id, 11.1 FROM range(1, 4)")
    assert run("SELECT * FROM t") == [(1, 11.1), (2, 11.1), (3, 11.1)]
    assert run("SELECT id FROM t UNION ALL SELECT 9 ORDER BY id DESC LIMIT 2") == [9, 3]
    assert sorted(run("SELECT id FROM t UNION SELECT id FROM t VERSION AS OF 1 UNION SELECT 1")) == [1, 2, 3]
    assert run("SELECT count(*) FROM (SELECT id FROM t UNION ALL SELECT d FROM t) AS u") == [6]
    assert run("SELECT distinct(id) FROM t ORDER BY id") == [1, 2, 3]
    assert run("SELECT a FROM range(10, 0, -4) AS r(a) WHERE a > 2") == [10, 6]
    assert run("INSERT INTO t SELECT 5L, 0.5 UNION ALL SELECT 6L, 1.5; SELECT sum(d) FROM t WHERE id > 3") == [2.0]
    for text, says in (
        ("SELECT 1, 2 UNION ALL SELECT 1", "the queries have 2 columns and 1 column"),
        ("SELECT * FROM range()", "the arguments of range are an end"),
        ("SELECT * FROM t, range(3)", "JOIN needs Spark"),
    ):
        with pytest.raises(OptionError, match=says):
            run(text)


def test_partitions_are_shown_and_named_as_spark_writes_their_values(run: Run) -> None:
    run("CREATE TABLE t (k INT, at TIMESTAMP, s STRING) PARTITIONED BY (at, s)")
    run("INSERT INTO t VALUES (1, TIMESTAMP '2024-01-01 10:00:00.5', 'x/y=z'), (2, NULL, ' ')")
    shown = "at=2024-01-01 10%3A00%3A00.5/s=x%2Fy%3Dz"
    assert run("SHOW PARTITIONS t") == [shown, "at=null/s=null"]
    for wanted in ("at = '2024-01-01 10:00:00.5'", "at = '2024-01-01 10:00:00.500000'", "s = 'x/y=z'"):
        assert run(f"SHOW PARTITIONS t PARTITION ({wanted})") == [shown]
    run("ALTER TABLE t DROP PARTITION (at = '2024-01-01 10:00:00.5')")
    assert run("SHOW PARTITIONS t PARTITION (at = NULL)") == run("SHOW PARTITIONS t") == ["at=null/s=null"]


def test_dates_and_times_among_the_columns_of_a_query_keep_their_type(run: Run) -> None:
    run(
        "CREATE TABLE t (k INT, at TIMESTAMP);"
        "INSERT INTO t SELECT id, CAST('2024-06-02 15:45:30' AS TIMESTAMP) FROM range(2)"
    )
    (row,) = run("SELECT DATE '2024-01-31' AS d, at, k FROM t WHERE at > TIMESTAMP '2024-06-02 15:45:29' AND k = 1")
    assert row == (date(2024, 1, 31), datetime(2024, 6, 2, 15, 45, 30), 1)


def test_a_table_is_refreshed_and_a_database_has_no_views(run: Run) -> None:
    run(
        "CREATE TABLE t (k INT, m MAP<INT, DOUBLE> DEFAULT map(99, 1.5D)) "
        "TBLPROPERTIES ('snapshot.num-retained.max' '20')"
    )
    assert run("REFRESH TABLE t") == ["OK"] and run("SHOW VIEWS") == run("SHOW VIEWS IN default LIKE 'x*'") == []
    assert run("INSERT INTO t (k) VALUES (1); SELECT m FROM t") == [[(99, 1.5)]]
    assert run("SHOW TBLPROPERTIES t ('snapshot.num-retained.max')") == [("snapshot.num-retained.max", "20")]
    with pytest.raises(TableNotFoundError, match=r"no table default\.u"):
        run("REFRESH TABLE u")


def test_ids_and_versions_of_rows_say_which_rows_a_statement_changes(run: Run) -> None:
    run("CREATE TABLE t (k INT, n INT) WITH ('row-tracking.enabled'='true')")
    run(
        "INSERT INTO t VALUES (2, 20), (3, 30); INSERT INTO t VALUES (4, 40);"
        "UPDATE t SET n = 41 WHERE _SEQUENCE_NUMBER = 2"
    )
    run("UPDATE t x SET n = n + 1 WHERE x._ROW_ID IN (1, 2) AND n + k > 10; DELETE FROM t WHERE _row_id = 0")
    assert run("SELECT *, _ROW_ID FROM t ORDER BY k") == [(3, 31, 1), (4, 42, 2)]
    with pytest.raises(OptionError, match="can only compare '_ROW_ID' with values"):
        run("DELETE FROM t WHERE _ROW_ID + 1 = 2")
    with pytest.raises(OptionError, match="unknown column '_ROW_ID'"):
        run("CREATE TABLE u (k INT); DELETE FROM u WHERE _ROW_ID = 1")


class _CountingSession(SqlSession):
    """A session that counts how often each table is opened."""

    opened: Counter[str]

    def table(self, name: TableReference, hints: Mapping[str, str] | None = None, *, writes: bool = False) -> Table:
        self.opened[name.table] += 1
        return super().table(name, hints, writes=writes)


@pytest.mark.parametrize(
    ("statement", "others"),
    [
        ("SELECT k FROM u WHERE k < sys.max_pt('n') AND k <> sys.max_pt('n')", 0),
        ("INSERT INTO u SELECT k FROM n WHERE p = sys.max_pt('n') OR p > sys.max_pt('n')", 1),
        ("CREATE TABLE c AS SELECT k FROM u WHERE k < sys.max_pt('n') AND k <> sys.max_pt('n')", 0),
        ("UPDATE u SET k = (SELECT k FROM u WHERE k = sys.max_pt('n')) WHERE k = sys.max_pt('n')", 0),
        ("DELETE FROM u WHERE k > sys.max_pt('n') AND k <> sys.max_pt('n')", 0),
    ],
)
def test_the_newest_partition_of_a_table_is_read_once_in_a_statement(
    statement: str, others: int, run: Run, tmp_path: Path
) -> None:
    run(
        "CREATE TABLE n (k INT, p INT) PARTITIONED BY (p); INSERT INTO n VALUES (1, 9), (2, 10);"
        "CREATE TABLE u (k INT); INSERT INTO u VALUES (10)"
    )
    session = _CountingSession({"paimon": bl.catalog(str(tmp_path))}, "paimon")
    session.opened = Counter()
    for _, parsed in parse_script(statement):
        run_statement(session, parsed)
    assert session.opened["n"] == 1 + others


def test_the_newest_partition_is_a_value_in_a_query_inside_a_change(run: Run) -> None:
    run(
        "CREATE TABLE n (k INT, p INT) PARTITIONED BY (p); INSERT INTO n VALUES (1, 9), (2, 10);"
        "CREATE TABLE u (k INT); INSERT INTO u VALUES (-10), (9), (10)"
    )
    run("DELETE FROM u WHERE k IN (SELECT p FROM n WHERE p = paimon.sys.max_pt('n')) OR k = -sys.max_pt('n')")
    assert run("SELECT k FROM u") == [9]
    run("UPDATE u SET k = (SELECT k FROM n WHERE p >= sys.max_pt('n')) WHERE k < (sys.max_pt('n'))")
    assert run("SELECT k FROM u") == [2]


def test_the_newest_partition_is_found_without_the_manifests_of_the_others(run: Run, tmp_path: Path) -> None:
    run("CREATE TABLE n (k INT, p INT, q INT) PARTITIONED BY (p, q) WITH ('manifest.merge-min-count' = '100')")
    folder = tmp_path / "default.db" / "n" / "manifest"
    seen: list[Path] = []
    for row in ("(1, 5, 1)", "(2, 40, NULL)", "(3, 7, 9)"):
        run(f"INSERT INTO n VALUES {row}")
        seen += [f for f in folder.glob("manifest-*") if "list" not in f.name and f not in seen]
    hidden = [(f, f.read_bytes()) for f in (seen[0], seen[2])]
    for file, _ in hidden:
        file.unlink()
    assert run("SELECT sys.max_pt('n')") == ["40"]
    for file, data in hidden:
        file.write_bytes(data)
    run("ALTER TABLE n DROP PARTITION (p = 40)")
    assert run("SELECT sys.max_pt('n')") == ["7"]
    run("TRUNCATE TABLE n; INSERT INTO n VALUES (1, NULL, 1)")
    with pytest.raises(OptionError, match="n has no partition with data"):
        run("SELECT sys.max_pt('n')")
    run("INSERT INTO n VALUES (1, -3, 1)")
    assert run("SELECT sys.max_pt('n')") == ["-3"]
