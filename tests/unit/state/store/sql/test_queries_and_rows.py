"""Queries and changes of rows without Spark: what they read and write, and which queries need Spark."""

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import bucketline as bl
from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.state.errors import SchemaMismatchError
from tests.support.pages.sql_text import Run

QUERIES: dict[str, list[Any]] = {
    "SELECT k, v FROM t WHERE dt = 'a' AND v > 1": [(1, 1.5)],
    "SELECT x.K AS key, 'c' FROM t x WHERE x.k IN (1, 2) ORDER BY key DESC": [(2, "c"), (1, "c")],
    "SELECT k FROM t ORDER BY v": [2, 4, 1, 3],
    "SELECT k FROM t ORDER BY v DESC": [3, 1, 4, 2],
    "SELECT k FROM t ORDER BY v DESC NULLS FIRST LIMIT 2": [2, 3],
    "SELECT k FROM t ORDER BY dt DESC, 1 LIMIT 2 OFFSET 1": [4, 1],
    "SELECT * FROM t LIMIT 0": [],
    "SELECT k FROM t WHERE k = 3 LIMIT 99999999999999999999": [3],
    "SELECT k FROM t LIMIT 9223372036854775807 OFFSET 99999999999999999999": [],
    "SELECT k FROM t ORDER BY k LIMIT 99999999999999999999 OFFSET 3": [4],
    "SELECT count(*), count(v), sum(v), min(k), max(dt), avg(k) FROM t": [(4, 3, 5.0, 1, "b", 2.5)],
    "SELECT count(*) FROM t WHERE k > 9": [0],
    "SELECT dt, count(*) AS n, max(v) FROM t GROUP BY dt ORDER BY n, dt DESC": [("b", 2, 3.0), ("a", 2, 1.5)],
    "SELECT count(DISTINCT dt) FROM t": [2],
    "SELECT DISTINCT dt FROM t ORDER BY dt DESC": ["b", "a"],
    "SELECT k * 2 AS d, upper(dt) || '!' FROM t WHERE k + 1 > v * 2 ORDER BY d DESC": [(8, "B!")],
    "SELECT v / 2 + 1, CAST(v AS DECIMAL(6,2)), CAST(k AS STRING) FROM t WHERE v / 2 > 1": [(2.5, 3.0, "3")],
    "SELECT 1 AS one, 'x', 1 + 1, CAST(NULL AS INT)": [(1, "x", 2, None)],
    "SELECT k, k FROM t WHERE k = 3": [3],
    "VALUES (1, 'a'), (2, NULL)": [(1, "a"), (2, None)],
    "VALUES (1), (2.5), (NULL), (99999999999), (1.25)": [1.0, 2.5, None, 99999999999.0, 1.25],
    "(SELECT k FROM t WHERE k = 1)": [1],
    "(SELECT k FROM t) ORDER BY k DESC LIMIT 2": [4, 3],
    "VALUES (3), (1), (2) ORDER BY col1 LIMIT 2": [1, 2],
    "SELECT * FROM VALUES (1, 'x'), (2, 'y') AS s(n, name) WHERE n > 1": [(2, "y")],
    "SELECT s.n + 1 AS m FROM (VALUES (1), (2)) AS s(n) ORDER BY m DESC": [3, 2],
    "SELECT x, max(n) FROM (SELECT dt, count(*) FROM t GROUP BY dt) AS c(x, n) GROUP BY x ORDER BY x": [
        ("a", 2),
        ("b", 2),
    ],
    "SELECT q.k FROM (SELECT k, v FROM (SELECT * FROM t) WHERE v > 1) q WHERE v < 3": [1],
    "SELECT rowkind, k FROM t$audit_log WHERE v > 1 AND dt = 'a'": [("+I", 1)],
    "SELECT bucket FROM t$table_indexes WHERE bucket > 0": [],
    "SELECT bucket, sum(record_count) FROM `t$files` WHERE level = 0 GROUP BY bucket": [(0, 4)],
}


def test_queries_over_one_table_need_no_spark(orders: Run) -> None:
    assert {text: list(map(plain, orders(text))) for text in QUERIES} == QUERIES


def plain(row: Any) -> Any:
    """A row with decimals as floats."""
    if isinstance(row, tuple):
        return tuple(map(plain, row))
    return float(row) if isinstance(row, Decimal) else row


NEEDS_SPARK = [
    ("SELECT * FROM t a JOIN t b ON a.k = b.k", "JOIN"),
    ("SELECT * FROM t WHERE k = (SELECT max(k) FROM t)", "a query with another query inside"),
    ("SELECT dt, count(*) FROM t GROUP BY dt HAVING count(*) > 1", "HAVING"),
    ("SELECT k FROM t EXCEPT SELECT k FROM t", "EXCEPT"),
    ("SELECT k FROM t UNION SELECT dt FROM t", "UNION of these types"),
    ("SELECT avg(v) FROM t", "AVG of a decimal"),
    ("SELECT soundex(dt) FROM t", r"SOUNDEX\(dt\)"),
    ("SELECT * FROM t WHERE soundex(dt) = 'A000'", r"WHERE SOUNDEX\(dt\)"),
    ("WITH x AS (SELECT 1) SELECT * FROM t", "WITH"),
    ("SELECT k FROM t ORDER BY k + 1", r"ORDER BY k \+ 1"),
    ("SELECT k FROM t ORDER BY 1.5", r"ORDER BY 1\.5"),
    ("VALUES (1), ('a')", "VALUES of these types"),
    ("SELECT DATE '2024-13-01'", "2024-13-01"),
    ("SELECT sum(dt) FROM t", "a query over columns of these types"),
    ("SELECT 1 WHERE 1 = 0", "WHERE without FROM"),
    ("SELECT k FROM t TABLESAMPLE (1 ROWS)", "TABLESAMPLE in t"),
    ("SELECT * FROM t PIVOT (sum(v) FOR k IN (1, 2))", "PIVOTS in t"),
    ("SELECT a FROM t AS x(a, b, c)", r"t AS x\(a, b, c\) after FROM"),
    ("SELECT dt, count(*) FROM t GROUP BY dt WITH ROLLUP", "ROLLUP in"),
    ("SELECT k FROM t LIMIT 10 PERCENT", "LIMIT_OPTIONS in"),
    ("SELECT k FROM (SELECT k FROM t) WHERE EXISTS (SELECT 1)", "a query with another query inside"),
    ("SELECT a FROM VALUES (1, NULL) AS s(a, b)", "column b"),
    ("SELECT k, row_number() OVER (ORDER BY k) FROM t", "OVER"),
]


def test_other_queries_are_refused_with_what_needs_spark(orders: Run) -> None:
    for text, what in NEEDS_SPARK:
        with pytest.raises(OptionError, match=f"{what}.* needs Spark: pass a Spark session"):
            orders(text)


def test_a_query_before_the_last_statement_is_checked_and_not_run(orders: Run, tmp_path: Path) -> None:
    for file in (tmp_path / "default.db" / "t").glob("*/bucket-*/data-*"):
        file.unlink()
    assert orders("SELECT dt, sum(v) FROM t GROUP BY dt; SELECT k FROM (SELECT k FROM t) q; SELECT 1") == [1]
    with pytest.raises(OptionError, match="unknown column 'nothing'"):
        orders("SELECT nothing FROM t; SELECT 1")
    with pytest.raises(BucketlineError):
        orders("SELECT sum(v) FROM t")


def test_columns_of_an_older_snapshot_are_those_of_its_time(orders: Run) -> None:
    orders("ALTER TABLE t RENAME COLUMN v TO w; INSERT INTO t VALUES (9, 9, 'z')")
    assert orders("SELECT max(w) FROM t") == [9]
    assert orders("SELECT count(v) FROM t VERSION AS OF 1") == [3]
    with pytest.raises(OptionError, match="unknown column 'w'"):
        orders("SELECT w FROM t VERSION AS OF 1")


def test_time_travel_reads_a_snapshot_a_tag_or_a_time(orders: Run) -> None:
    orders("CALL sys.create_tag('t', 'first', 1); DELETE FROM t WHERE k < 4")
    assert orders("SELECT count(*) FROM t") == [1]
    for version in ("VERSION AS OF 1", "VERSION AS OF 'first'", "FOR SYSTEM_VERSION AS OF 1"):
        assert orders(f"SELECT count(*) FROM t {version}") == [4]
    (committed,) = orders("SELECT commit_time FROM t$snapshots WHERE snapshot_id = 2")
    before = committed - timedelta(milliseconds=1)
    assert orders(f"SELECT count(*) FROM t TIMESTAMP AS OF '{before}'") == [4]
    assert orders(f"SELECT count(*) FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '{committed}'") == [1]
    assert orders("SELECT record_count FROM `t$partitions` VERSION AS OF 1") == [2, 2]


def test_inserts_fill_columns_by_position_by_list_and_by_name(orders: Run) -> None:
    orders("INSERT INTO t (dt, k) VALUES ('c', 7); INSERT INTO t PARTITION (dt = 'd') VALUES (8, 8)")
    orders(
        "INSERT INTO t BY NAME SELECT 'e' AS DT, 9 AS k;"
        "INSERT INTO t PARTITION (dt = 'f') (v, k) SELECT v, k FROM t WHERE k = 3"
    )
    assert [r[0::2] for r in orders("SELECT * FROM t WHERE k > 4 ORDER BY k")] == [(7, "c"), (8, "d"), (9, "e")]
    assert orders("SELECT count(*) FROM t WHERE dt = 'f' AND v = 3 AND k = 3") == [1]


def test_the_rows_of_a_table_are_inserted_by_name_and_by_position(orders: Run) -> None:
    orders("CREATE TABLE s (dt STRING, k INT); INSERT INTO s VALUES ('g', 9); INSERT INTO t BY NAME TABLE s")
    assert orders("SELECT * FROM t WHERE k > 4") == [(9, None, "g")]
    orders("INSERT OVERWRITE t BY NAME TABLE s; INSERT INTO t (dt, k) TABLE s")
    assert orders("TABLE t") == [(9, None, "g")]
    with pytest.raises(SchemaMismatchError, match=r"2 values for 3 columns"):
        orders("INSERT INTO t TABLE s")
    with pytest.raises(SchemaMismatchError, match="column x: unknown to the table"):
        orders("ALTER TABLE s ADD COLUMN x INT; INSERT INTO t BY NAME TABLE s")


def test_overwrites_replace_the_partition_that_is_named_or_those_that_get_rows(orders: Run) -> None:
    orders("SET spark.sql.sources.partitionOverwriteMode = dynamic")
    orders("INSERT OVERWRITE t PARTITION (dt = 'a') VALUES (6, 6)")
    assert orders("SELECT k FROM t ORDER BY k") == [3, 4, 6]
    orders("INSERT OVERWRITE t SELECT 5, 5, 'b'")
    assert orders("SELECT k FROM t ORDER BY k") == [5, 6]
    orders("ALTER TABLE t DROP PARTITION (dt = 'b')")
    assert orders("SELECT k FROM t") == [6]
    with pytest.raises(OptionError, match="no partition of t matches; use DROP IF EXISTS PARTITION"):
        orders("ALTER TABLE t DROP PARTITION (dt = 'b'), PARTITION (dt = 'c')")
    orders("ALTER TABLE t DROP IF EXISTS PARTITION (dt = 'b')")
    orders("ALTER TABLE t DROP PARTITION (dt = 'b'), PARTITION (dt = 'a')")
    assert orders("SELECT k FROM t") == [] and orders("TRUNCATE TABLE t; SELECT k FROM t") == []


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("INSERT INTO t VALUES (1, 2)", SchemaMismatchError, r"2 values for 3 columns \(k, v, dt\)"),
        ("INSERT INTO t VALUES ('x', 2, 'a')", OptionError, "it takes a number"),
        ("INSERT INTO t (k, q) VALUES (1, 2)", OptionError, "unknown column 'q'"),
        ("INSERT INTO t (k, K) VALUES (1, 2)", OptionError, "column 'k' is given twice"),
        ("INSERT INTO t PARTITION (v = 1) VALUES (1, 'a')", OptionError, "'v' is not a partition column"),
        ("INSERT INTO t VALUES (NULL, 1, 'a')", SchemaMismatchError, "k"),
        ("UPDATE t SET v = (SELECT v FROM t) WHERE k = 1", OptionError, "returns 4 rows, but one value is needed"),
        ("SELECT dt.x FROM t", OptionError, "string has no field 'x'"),
        ("DELETE FROM t WHERE k IN (SELECT k FROM t AS s WHERE s.v = t.v)", OptionError, "MERGE INTO .* joins rows"),
        ("UPDATE t SET v = q + 1 WHERE k = 1", OptionError, "unknown column 'q'"),
        ("DELETE FROM t WHERE q = 1", OptionError, "unknown column 'q'"),
        ("MERGE INTO t USING t s ON 1 = 1 WHEN MATCHED THEN DELETE", OptionError, "ON 1 = 1 is not supported"),
        ("MERGE INTO t USING t s ON k = s.k WHEN MATCHED THEN DELETE", OptionError, r"'k' can mean t\.k, s\.k"),
    ],
)
def test_rows_that_do_not_fit_change_nothing(orders: Run, text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        orders(text)
    assert orders("SELECT count(*) FROM t$snapshots") == [1]


def test_a_name_that_two_columns_have_in_another_case_is_refused_and_not_guessed(orders: Run) -> None:
    orders("CREATE TABLE two (k INT, v INT, V INT)")
    orders("INSERT INTO two (K, v, V) VALUES (1, 2, 3)")
    assert orders("SELECT V FROM two") == [3]
    orders("CREATE TABLE three (k INT, ab INT, aB INT)")
    with pytest.raises(OptionError, match="column 'AB' can mean ab, aB; write which of them is meant"):
        orders("INSERT INTO three (k, AB) VALUES (1, 2)")
    assert orders("SELECT * FROM three") == []


def test_updates_and_deletes_take_conditions_as_queries_do(orders: Run) -> None:
    orders("UPDATE t AS x SET v = 9.5 WHERE x.k = 1 OR x.V IS NULL; DELETE FROM t WHERE dt = 'b' AND k BETWEEN 3 AND 3")
    assert [float(v) for v in orders("SELECT v FROM t ORDER BY k")] == [9.5, 9.5, 0.5]
    orders("DELETE FROM t")
    assert orders("SELECT * FROM t") == []


def test_values_are_computed_from_the_row_as_it_was(orders: Run) -> None:
    orders("UPDATE t SET v = v * 2 + k WHERE v + 1 > 2")
    assert [v and float(v) for v in orders("SELECT v FROM t ORDER BY k")] == [4.0, None, 9.0, 0.5]


def test_a_merge_changes_what_matches_and_inserts_the_rest(orders: Run) -> None:
    orders("CREATE TABLE s (id INT, day STRING, v DECIMAL(5,1), note STRING)")
    orders("INSERT INTO s VALUES (1, 'a', 10, 'x'), (9, 'a', 90, 'y')")
    on = "ON t.k = s.id AND t.dt = s.day"
    orders(
        f"MERGE INTO t USING s {on} WHEN MATCHED THEN UPDATE SET v = t.v + s.v WHEN NOT MATCHED THEN INSERT (k, dt) "
        "VALUES (s.id, s.day)"
    )
    rows = [(k, v and float(v)) for k, v in orders("SELECT k, v FROM t ORDER BY k")]
    assert rows == [(1, 11.5), (2, None), (3, 3.0), (4, 0.5), (9, None)]
    source = "(SELECT k, dt, 7 AS v FROM t /*+ OPTIONS('scan.snapshot-id'='1') */ WHERE k < 3)"
    orders(
        f"MERGE INTO t USING {source} AS n ON t.k = n.k AND t.dt = n.dt WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    assert [float(v) for v in orders("SELECT v FROM t WHERE k < 3 ORDER BY k")] == [7.0, 7.0]
    orders(f"MERGE INTO t USING s {on} WHEN MATCHED THEN DELETE")
    assert orders("SELECT k FROM t ORDER BY k") == [2, 3, 4]


def test_an_overwrite_replaces_the_whole_table_where_it_is_asked_to(orders: Run) -> None:
    orders("CREATE TABLE p (k INT, d INT) PARTITIONED BY (d) WITH ('connector'='paimon')")
    orders("INSERT INTO p VALUES (1, 1), (2, 2)")
    orders("SET spark.sql.sources.partitionOverwriteMode = dynamic; INSERT OVERWRITE p VALUES (3, 2)")
    assert sorted(orders("SELECT k FROM p")) == [1, 3]
    orders("INSERT OVERWRITE p /*+ OPTIONS('dynamic-partition-overwrite'='false') */ VALUES (4, 2)")
    assert orders("SELECT k FROM p") == [4]
    orders("INSERT INTO p VALUES (1, 1); RESET")
    orders("INSERT OVERWRITE p /*+ OPTIONS('dynamic-partition-overwrite'='true') */ VALUES (5, 2)")
    assert sorted(orders("SELECT k FROM p")) == [1, 5]
    orders("INSERT OVERWRITE p SELECT 6, 2")
    assert orders("SELECT k FROM p") == [6]
    orders("INSERT INTO p VALUES (1, 1); SET spark.sql.sources.partitionOverwriteMode = STATIC")
    orders("INSERT OVERWRITE p PARTITION (d) SELECT 7, 2")
    assert orders("SELECT k FROM p") == [7]
    orders("INSERT INTO p VALUES (1, 1); ALTER TABLE p SET ('dynamic-partition-overwrite'='true')")
    orders("INSERT OVERWRITE p VALUES (8, 2)")
    assert sorted(orders("SELECT k FROM p")) == [1, 8]
    with pytest.raises(OptionError, match="it would have no effect"):
        orders("SET spark.sql.sources.partitionOverwriteMode = sometimes")


def test_maps_are_set_by_keys_and_values_in_turn(run: Run) -> None:
    run("CREATE TABLE t (k INT, m MAP<STRING, BIGINT>, PRIMARY KEY (k) NOT ENFORCED)")
    run("INSERT INTO t VALUES (1, NULL), (2, NULL); UPDATE t SET m = map('a', k, concat('b', k), NULL)")
    assert run("SELECT m FROM t ORDER BY k") == [[("a", 1), ("b1", None)], [("a", 2), ("b2", None)]]
    run("UPDATE t SET m = map('x', 1) WHERE k = 1; UPDATE t SET m = map() WHERE k = 2")
    assert run("SELECT m FROM t ORDER BY k") == [[("x", 1)], []]
    run("DELETE FROM t WHERE element_at(m, 'x') = 1")
    assert run("SELECT k FROM t") == [2]
    for values, why in (
        ("'a', 1, 'a', 2", "key twice"),
        ("NULL, 1", "cannot be null"),
        ("'a'", "a value for each key"),
    ):
        with pytest.raises((OptionError, SchemaMismatchError), match=why):
            run(f"UPDATE t SET m = map({values})")


def test_a_query_may_name_the_places_of_rows_and_a_star_does_not_include_them(tmp_path: Path) -> None:
    def run(text: str) -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in bl.sql(None, text, str(tmp_path)).to_pylist()]

    run(
        "CREATE TABLE t (k INT, p STRING) PARTITIONED BY (p);"
        "INSERT INTO t VALUES (1, 'x'), (2, 'x'), (3, 'y'); INSERT INTO t VALUES (4, 'x')"
    )
    assert run("SELECT * FROM t WHERE __paimon_partition.p = 'y' AND k > 0") == [(3, "y")]
    assert run("SELECT *, t.__PAIMON_row_index FROM t WHERE __paimon_bucket = 0 AND k IN (2, 4) ORDER BY k") == [
        (2, "x", 1),
        (4, "x", 0),
    ]
    counted = run(
        "SELECT __paimon_partition, COUNT(*), __paimon_bucket FROM t GROUP BY __paimon_partition, __paimon_bucket"
    )
    assert sorted(counted, key=str) == [({"p": "x"}, 3, 0), ({"p": "y"}, 1, 0)]
    files = run("SELECT __paimon_file_path, COUNT(*) FROM t GROUP BY __paimon_file_path ORDER BY 2 DESC")
    assert sorted(files) == sorted(run("SELECT file_path, record_count FROM t$files")) and files[0][1] == 2
    run(f"DELETE FROM t WHERE __paimon_file_path = '{files[0][0]}' AND __paimon_row_index = 0")
    run("UPDATE t SET k = k * 10 WHERE __paimon_partition.p = 'y'")
    assert sorted(run("SELECT k FROM t")) == [(2,), (4,), (30,)]
    with pytest.raises(OptionError, match="unknown column '__paimon_buckets'; did you mean '__paimon_bucket'"):
        run("SELECT __paimon_buckets FROM t")
    with pytest.raises(OptionError, match=r"unknown column 'zzzzzz'; there are k, p$"):
        run("SELECT zzzzzz FROM t")


def test_a_hint_at_the_end_of_a_statement_is_heard(orders: Run) -> None:
    orders("DELETE FROM t WHERE k < 9; CREATE TABLE u (k INT)")
    old = "SELECT k FROM t /*+ OPTIONS('scan.snapshot-id'='1') */"
    assert orders("SELECT count(*) FROM t") == [0]
    assert orders(f"INSERT INTO u {old}; SELECT count(*) FROM u") == orders(f"{old.replace('k', 'count(*)', 1)}") != [0]
    assert orders(f"CREATE TABLE w AS {old} -- of the first snapshot\n; SELECT k FROM w") == orders(old)
    assert orders(f"INSERT OVERWRITE u {old}; SELECT k FROM u") == orders(old)


def test_a_hint_inside_a_comment_is_none(orders: Run) -> None:
    orders("INSERT INTO t VALUES (9, 9, 'c')")
    old = "/*+ OPTIONS('scan.snapshot-id'='1') */"
    assert orders(f"SELECT count(*) FROM t -- {old}") == orders(f"SELECT count(*) FROM t /* as {old} */") == [5]
    assert orders(f"SELECT count(*) FROM t -- the first\n {old}") == [4]
    orders(f"TRUNCATE TABLE t -- {old}")
    assert orders("SELECT count(*) FROM t") == [0]


@pytest.mark.parametrize("form", ["VALUES ({})", "SELECT {}"])
def test_insert_casts_values_to_the_types_of_columns_as_spark_does(tmp_path: Path, form: str) -> None:
    def run(text: str) -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in bl.sql(None, text, str(tmp_path)).to_pylist()]

    run("CREATE TABLE t (i INT, b BIGINT, s STRING, d DATE, n DECIMAL(5, 2), f DOUBLE, o BOOLEAN, c CHAR(2))")
    for column, value, stored in (
        ("i", "'4'", 4),
        ("b", "1.73", 1),
        ("s", "true", "true"),
        ("s", "1.50", "1.50"),
        ("s", "DATE '2024-01-02'", "2024-01-02"),
        ("d", "'2024-01-02'", date(2024, 1, 2)),
        ("n", "'1.235'", Decimal("1.24")),
        ("f", "'1.5'", 1.5),
        ("o", "1", True),
    ):
        run(f"INSERT OVERWRITE t ({column}) {form.format(value)}")
        assert run(f"SELECT {column} FROM t") == [(stored,)]
    for column, value in {"i": "'x'", "b": "'1.5'", "d": "7", "c": "'abc'", "n": "12345"}.items():
        with pytest.raises((OptionError, SchemaMismatchError), match=f"column '?{column}"):
            run(f"INSERT INTO t ({column}) {form.format(value)}")
    assert run("SELECT o FROM t") == [(True,)]
    nested, wrong = "map('1', 1.16, '2', 10), struct('1.5', array(7))", "struct('z', array(7))"
    run("CREATE TABLE n (m MAP<INT, DECIMAL(5, 1)>, s STRUCT<x: DOUBLE, l: ARRAY<STRING>>)")
    run(f"INSERT INTO n {form.format(nested)}")
    assert run("SELECT * FROM n") == [([(1, Decimal("1.2")), (2, Decimal(10))], {"x": 1.5, "l": ["7"]})]
    with pytest.raises(SchemaMismatchError, match=r"column s\.x: 'z' cannot be cast to DOUBLE"):
        run(f"INSERT INTO n (s) {form.format(wrong)}")
