"""Statements without Spark: definitions, what lasts in a session, queries, changes of rows, procedures."""

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.state.errors import DatabaseNotFoundError, SchemaMismatchError, TableNotFoundError
from tests.support.pages.sql_text import Run


@pytest.fixture
def orders(run: Run) -> Run:
    run(
        "CREATE TABLE t (k INT, v DECIMAL(5,1), dt STRING, PRIMARY KEY (k, dt) NOT ENFORCED) PARTITIONED BY (dt) "
        "WITH ('bucket'='1'); INSERT INTO t VALUES (1, 1.5, 'a'), (2, NULL, 'a'), (3, 3, 'b'), (4, 0.5, 'b')"
    )
    return run


def test_a_table_is_shown_as_the_statement_that_makes_it(run: Run) -> None:
    run(
        "CREATE TABLE `odd name` (`a b` INT NOT NULL COMMENT 'it''s', r ROW<x INT, y STRING>, ts TIMESTAMP(3), "
        "dt STRING, PRIMARY KEY (`a b`, dt) NOT ENFORCED) COMMENT 'c' PARTITIONED BY (dt) WITH ('bucket'='2')"
    )
    (statement,) = run("SHOW CREATE TABLE `odd name`")
    run("DROP TABLE `odd name`")
    run(statement)
    assert run("SHOW CREATE TABLE `odd name`") == [statement]
    assert run("DESCRIBE `odd name`")[0] == ("a b", "INT", False, "primary key", "it's")
    assert run("DESCRIBE `odd name`")[1][:2] == ("r", "ROW<x INT, y STRING>")
    assert run("SHOW COLUMNS IN `odd name`") == ["a b", "r", "ts", "dt"]
    assert run("SHOW TBLPROPERTIES `odd name`") == [("bucket", "2")]


def test_a_comment_may_be_among_the_properties_as_in_spark(run: Run) -> None:
    run("CREATE TABLE t (a INT) TBLPROPERTIES ('comment'='mine', 'bucket'='-1')")
    assert "COMMENT 'mine'" in run("SHOW CREATE TABLE t")[0] and run("SHOW TBLPROPERTIES t") == [("bucket", "-1")]
    assert run("DESCRIBE t$options") == [("key", "STRING", False, None, None), ("value", "STRING", False, None, None)]


def test_a_table_is_made_like_another_or_from_a_query(orders: Run) -> None:
    orders("CREATE TABLE u LIKE t; CREATE TABLE w WITH ('primary-key'='k') AS SELECT k, v FROM t WHERE k > 2")
    assert orders("SHOW CREATE TABLE u")[0].splitlines()[1:] == orders("SHOW CREATE TABLE t")[0].splitlines()[1:]
    assert orders("SELECT count(*) FROM u") == [0] and orders("SELECT k FROM w ORDER BY k") == [3, 4]
    with pytest.raises(SchemaMismatchError):
        orders("CREATE TABLE x WITH ('primary-key'='v') AS SELECT k, v FROM t")
    assert orders("SHOW TABLES LIKE 't|u|x'") == [("default", "t"), ("default", "u")]


def test_catalogs_databases_and_options_last_from_one_text_to_the_next(tmp_path: Path, orders: Run) -> None:
    orders(f"CREATE CATALOG other WITH ('warehouse'='{tmp_path}/other'); CREATE DATABASE shop; USE shop")
    assert orders("SHOW CURRENT DATABASE") == ["shop"]
    with pytest.raises(TableNotFoundError, match=r"no table shop\.t"):
        orders("SELECT * FROM t")
    assert orders("SELECT count(*) FROM default.t") == orders("SELECT count(*) FROM paimon.default.t") == [4]
    assert orders("USE CATALOG other; SHOW TABLES") == [] and orders("SHOW CATALOGS") == ["other", "paimon"]
    orders("CREATE TABLE t (a INT); USE paimon.default; DROP CATALOG other")
    with pytest.raises(DatabaseNotFoundError):
        orders("USE nowhere")
    with pytest.raises(OptionError, match="there is no catalog 'other'"):
        orders("SELECT * FROM other.default.t")
    orders("INSERT INTO t VALUES (5, 5, 'c'); SET spark.paimon.scan.snapshot-id = 1")
    assert orders("SELECT count(*) FROM t$snapshots") == [2] and orders("SELECT sum(record_count) FROM t$files") == [4]
    assert orders("SELECT count(*) FROM t") == [4] and orders("SET") == [("spark.paimon.scan.snapshot-id", "1")]
    assert orders("RESET spark.paimon.scan.snapshot-id; SELECT count(*) FROM t") == [5]
    orders("SET 'paimon.*.*.u.scan.snapshot-id' = '1'; SET spark.paimon.paimon.default.t.scan.snapshot-id = 1")
    assert orders("SELECT count(*) FROM t") == [4] and orders("RESET; SELECT count(*) FROM t") == [5]
    assert bl.sql(None, "SHOW CATALOGS", str(tmp_path / "another")).to_pylist() == [{"catalog": "paimon"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SET 'parallelism.default' = '4'", "it would have no effect"),
        ("SET spark.paimon.buckt = 4", "unknown option 'buckt'; did you mean 'bucket'"),
        ("SELECT * FROM t /*+ OPTIONS('write-only'='true') */", "the hint 'write-only' has no effect on reading t"),
        ("INSERT INTO t /*+ OPTIONS('scan.snapshot-id'='1') */ VALUES (1,1,'a')", "no effect on writing t"),
        ("CREATE TABLE x (a INT) WITH ('connector'='kafka')", "you specify 'connector'= 'kafka'"),
        ("CREATE CATALOG c WITH ('type'='hive', 'warehouse'='/w')", "'type' = 'hive' is not supported"),
        ("CREATE CATALOG paimon WITH ('warehouse'='/w')", "Catalog paimon already exists"),
        ("DROP TABLE `t$files`", "drop the table itself"),
        ("INSERT INTO `t$files` VALUES (1)", "is a system table, which cannot be changed"),
        ("SELECT * FROM `t$file`", r"there is no system table 'file'; did you mean 'files'"),
        ("SHOW PARTITIONS u", "has no partitions"),
        ("ALTER TABLE `t$files` ADD x INT", "is a system table, which cannot be changed"),
        ("ALTER TABLE `t$files` CREATE TAG x", "is a system table, which cannot be changed"),
        ("ALTER TABLE t RENAME TO `u$files`", "is a system table, which cannot be changed"),
        ("CALL sys.compact('t$files')", "is a system table, which cannot be changed"),
        ("MERGE INTO `t$files` USING u ON k = a WHEN MATCHED THEN DELETE", "which cannot be changed"),
        ("SELECT k FROM t ORDER BY 2", "ORDER BY 2 names no column of the result"),
        ("CALL sys.run_compactor('t', 'soon')", "wait = 'soon': not a duration like '10 s'"),
        ("SHOW PARTITIONS t PARTITION (v = 1)", "'v' is no partition column"),
        ("ALTER TABLE t DELETE TAG nothing", r"Tag 'nothing' doesn't exist\."),
    ],
)
def test_what_has_no_effect_or_does_not_exist_is_refused(orders: Run, text: str, message: str) -> None:
    orders("CREATE TABLE u (a INT)")
    with pytest.raises(OptionError, match=message):
        orders(text)


def test_without_a_warehouse_tables_are_named_by_their_paths(tmp_path: Path) -> None:
    bl.create_table(str(tmp_path / "$x" / "t"), "a INT").write(pa.table({"a": pa.array([1], pa.int32())}))
    assert bl.sql(None, f"SELECT * FROM `{tmp_path}/$x/t`").to_pylist() == [{"a": 1}]
    assert bl.sql(None, f"SELECT snapshot_id FROM `{tmp_path}/$x/t$snapshots`").to_pylist() == [{"snapshot_id": 1}]
    bl.open_table(str(tmp_path / "$x" / "t")).create_branch("b")
    assert bl.sql(None, f"SELECT * FROM `{tmp_path}/$x/t$branch_b`").to_pylist() == []
    with pytest.raises(OptionError, match="no warehouse is given"):
        bl.sql(None, "SHOW TABLES")
    with pytest.raises(OptionError, match="holds no statement"):
        bl.sql(None, " ; -- nothing")


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
        with pytest.raises(OptionError, match=f"{what}.* needs Spark: give a Spark session"):
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


def test_overwrites_replace_the_partition_that_is_named_or_those_that_get_rows(orders: Run) -> None:
    orders("SET spark.sql.sources.partitionOverwriteMode = dynamic")
    orders("INSERT OVERWRITE t PARTITION (dt = 'a') VALUES (6, 6)")
    assert orders("SELECT k FROM t ORDER BY k") == [3, 4, 6]
    orders("INSERT OVERWRITE t SELECT 5, 5, 'b'")
    assert orders("SELECT k FROM t ORDER BY k") == [5, 6]
    orders("ALTER TABLE t DROP PARTITION (dt = 'b')")
    assert orders("SELECT k FROM t") == [6]
    with pytest.raises(OptionError, match="no partition of t matches; DROP IF EXISTS PARTITION"):
        orders("ALTER TABLE t DROP PARTITION (dt = 'b'), PARTITION (dt = 'c')")
    orders("ALTER TABLE t DROP IF EXISTS PARTITION (dt = 'b')")
    orders("ALTER TABLE t DROP PARTITION (dt = 'b'), PARTITION (dt = 'a')")
    assert orders("SELECT k FROM t") == [] and orders("TRUNCATE TABLE t; SELECT k FROM t") == []


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("INSERT INTO t VALUES (1, 2)", SchemaMismatchError, r"2 values for 3 columns \(k, v, dt\)"),
        ("INSERT INTO t VALUES (1.5, 2, 'a')", OptionError, "without rounding"),
        ("INSERT INTO t VALUES ('x', 2, 'a')", OptionError, "it takes a number"),
        ("INSERT INTO t (k, q) VALUES (1, 2)", OptionError, "unknown column 'q'"),
        ("INSERT INTO t (k, K) VALUES (1, 2)", OptionError, "column 'k' is given twice"),
        ("INSERT INTO t PARTITION (v = 1) VALUES (1, 'a')", OptionError, "'v' is no partition column"),
        ("INSERT INTO t VALUES (NULL, 1, 'a')", SchemaMismatchError, "k"),
        ("UPDATE t SET v = (SELECT v FROM t) WHERE k = 1", OptionError, "gives 4 rows where one value is needed"),
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
    with pytest.raises(OptionError, match="column 'AB' can mean ab, aB; write which one"):
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


def test_tables_are_altered_renamed_and_dropped(orders: Run) -> None:
    orders(
        "ALTER TABLE t ADD (w VARCHAR(5) COMMENT 'new'); ALTER TABLE t MODIFY w VARCHAR(9) AFTER k;"
        "ALTER TABLE t RENAME w TO u"
    )
    assert [r[:2] for r in orders("DESC t")][:2] == [("k", "INT"), ("u", "VARCHAR(9)")]
    orders("ALTER TABLE t SET ('snapshot.num-retained.max'='20', 'comment'='mine'); ALTER TABLE t RENAME TO r")
    assert ("snapshot.num-retained.max", "20") in orders("SELECT * FROM r$options")
    assert "COMMENT 'mine'" in orders("SHOW CREATE TABLE r")[0]
    orders("DROP TABLE IF EXISTS t; DROP TABLE r; ALTER TABLE IF EXISTS t RENAME TO x; DROP DATABASE default")
    with pytest.raises(DatabaseNotFoundError):
        orders("ALTER TABLE t ADD c INT")


def test_procedures_take_the_arguments_of_spark_and_of_flink(orders: Run) -> None:
    assert orders("CALL sys.compact('t', 'dt=a', 'minor')") == orders(
        "CALL sys.compact('t', '', '', '', '', '', '', 'full')"
    )
    assert orders("SELECT DISTINCT level FROM t$files") == [5]
    assert orders("CALL sys.create_branch(`table` => 'default.t', branch => 'b', ignoreIfExists => 'true')") == [True]
    assert orders("SELECT branch_name FROM t$branches") == ["b"] and orders("SELECT * FROM t$branch_b") == []
    with pytest.raises(OptionError, match="Cannot fast forward branch b, because it does not have snapshot"):
        orders("CALL sys.fast_forward('t', 'b')")
    orders("INSERT INTO t$branch_b VALUES (8, 8, 'a')")
    assert orders("SELECT k FROM t WHERE k = 8") == [] and orders("SELECT k FROM t$branch_b") == [8]
    orders("CALL sys.delete_branch('t', 'b'); CALL sys.create_tag(table => 't', tag => 'x', snapshot_id => 1)")
    orders("CALL sys.create_tag('t', 'y', 1, '1 h'); CALL sys.rollback_to('t', 'x')")
    assert orders("SELECT tag_name, time_retained FROM t$tags") == [("x", None), ("y", "PT1H")]
    orders("INSERT INTO t VALUES (5,5,'a'); INSERT INTO t VALUES (6,6,'a'); CALL sys.delete_tag('t', 'x,y')")
    with pytest.raises(OptionError, match=r"retainMax \(1\) must not be less than retainMin \(10\)"):
        orders("CALL sys.expire_snapshots('t', 1)")
    assert orders("CALL sys.expire_snapshots(table => 't', retain_max => 2, retain_min => 1)") == [1]
    assert orders("CALL sys.rollback(table => 't', version => '2')") == [(3, 2)]
    with pytest.raises(OptionError, match="only can set one of version/snapshot/tag in RollbackProcedure"):
        orders("CALL sys.rollback(table => 't', version => '2', snapshot => 1)")
    assert orders("CALL sys.remove_orphan_files(table => 'default.*', dry_run => true)") == [(0, 0)]


def test_a_rescale_says_what_it_needs(run: Run) -> None:
    run(
        "CREATE TABLE p (a INT PRIMARY KEY NOT ENFORCED) "
        "WITH ('bucket'='-2', 'postpone.batch-write-fixed-bucket'='false')"
    )
    with pytest.raises(OptionError, match=r"^Table default\.p has no snapshot, no need to rescale\.$"):
        run("CALL sys.rescale('p', 2)")
    run("INSERT INTO p VALUES (1)")
    with pytest.raises(OptionError, match="you must provide the resulting bucket number"):
        run("CALL sys.rescale('p')")
    with pytest.raises(OptionError, match="sink_parallelism is not supported"):
        run("CALL sys.rescale(`table` => 'p', bucket_num => 2, sink_parallelism => 4)")


def test_a_branch_becomes_the_table(orders: Run) -> None:
    orders("CALL sys.create_tag('t', 'x'); CALL sys.create_branch('t', 'b', 'x')")
    orders("INSERT INTO t$branch_b VALUES (8, 8, 'a'); CALL sys.fast_forward('t', 'b')")
    assert orders("SELECT count(*), max(k) FROM t") == [(5, 8)]


def test_a_compaction_takes_options_conditions_and_idle_partitions(orders: Run) -> None:
    levels = "SELECT partition, level FROM t$files ORDER BY partition"
    orders("CALL sys.compact(table => 't', where => 'dt > \"a\"')")
    assert orders(levels) == [("{a}", 0), ("{b}", 5)]
    orders("CALL sys.compact(table => 't', partition_idle_time => '1 d')")
    assert orders(levels) == [("{a}", 0), ("{b}", 5)]
    orders("CALL sys.compact(table => 't', options => 'target-file-size=1mb,write-only=false')")
    assert orders(levels) == [("{a}", 5), ("{b}", 5)]
    with pytest.raises(OptionError, match="unknown option 'target-file-sise'"):
        orders("CALL sys.compact(table => 't', options => 'target-file-sise=1mb')")
    with pytest.raises(OptionError, match=r"there is no procedure sys\.compat; did you mean 'compact'"):
        orders("CALL sys.compat('t')")
    with pytest.raises(OptionError, match="argument 'table' is missing"):
        orders("CALL sys.compact()")


def test_tags_are_moved_and_renamed(orders: Run) -> None:
    orders("UPDATE t SET v = 9; ALTER TABLE t CREATE TAG x AS OF VERSION 1; ALTER TABLE t CREATE OR REPLACE TAG y")
    shown = "SELECT tag_name, snapshot_id, time_retained FROM t$tags ORDER BY tag_name"
    before = orders(shown)
    newest = before[1][1]
    assert before == [("x", 1, None), ("y", newest, None)] and newest > 1
    orders("ALTER TABLE t REPLACE TAG x RETAIN 2 DAYS; ALTER TABLE t CREATE OR REPLACE TAG y AS OF VERSION 1")
    assert [(name, snapshot, kept is None) for name, snapshot, kept in orders(shown)] == [
        ("x", newest, False),
        ("y", 1, True),
    ]
    orders("ALTER TABLE t RENAME TAG x TO z")
    assert [name for name, *_ in orders(shown)] == ["y", "z"]
    for text, message in (
        ("REPLACE TAG x", r"Tag 'x' doesn't exist\."),
        ("RENAME TAG x TO w", r"Tag 'x' doesn't exist\."),
        ("RENAME TAG y TO z", r"Tag 'z' already exists\."),
        ("RENAME TAG y TO `a/b`", "cannot hold '/'"),
        ("REPLACE TAG y AS OF VERSION 99", "has no snapshot 99"),
    ):
        with pytest.raises(OptionError, match=message):
            orders(f"ALTER TABLE t {text}")
    assert [name for name, *_ in orders(shown)] == ["y", "z"]


def test_several_columns_are_altered_at_once(orders: Run) -> None:
    orders("ALTER TABLE t ADD a INT; ALTER TABLE t ALTER COLUMN a TYPE BIGINT, v COMMENT 'how much', a FIRST")
    assert next((row[0], row[1], row[-1]) for row in orders("DESCRIBE t")) == ("a", "BIGINT", None)
    assert ("v", "how much") in [(row[0], row[-1]) for row in orders("DESCRIBE t")]


def test_columns_are_altered_in_any_case_and_never_added_twice(orders: Run) -> None:
    orders("CREATE TABLE n (Id INT, Name STRING, S ROW<Ab INT, C ARRAY<ROW<De INT>>>, p STRING) PARTITIONED BY (p)")
    orders("ALTER TABLE n RENAME NAME TO nom; ALTER TABLE n ALTER COLUMN ID COMMENT 'key', NOM FIRST")
    orders("ALTER TABLE n ADD COLUMN s.c.ELEMENT.x INT AFTER DE; ALTER TABLE n DROP COLUMN s.AB")
    orders("ALTER TABLE n DROP COLUMN IF EXISTS iD; ALTER TABLE n DROP COLUMNS IF EXISTS (id, s.y)")
    assert [row[:2] for row in orders("DESCRIBE n")] == [
        ("nom", "STRING"),
        ("S", "ROW<C ARRAY<ROW<De INT, x INT>>>"),
        ("p", "STRING"),
    ]
    for text in ("nom STRING", "s.C INT"):
        with pytest.raises(OptionError, match="already exists"):
            orders(f"ALTER TABLE n ADD {text}")
    orders(
        "INSERT INTO n PARTITION (P = 'x') (NOM) VALUES ('a'); INSERT INTO n PARTITION (P) (nom, p) VALUES ('b', 'y')"
    )
    assert orders("SHOW PARTITIONS n PARTITION (P = 'x')") == ["p=x"]
    orders("ALTER TABLE n DROP PARTITION (P = 'x'); TRUNCATE TABLE n PARTITION (P = 'z')")
    assert orders("SELECT p FROM n") == ["y"]


def test_a_table_from_a_query_takes_nulls_inside_its_columns(run: Run) -> None:
    run("CREATE TABLE s (id INT NOT NULL, a ARRAY<INT NOT NULL>, r ROW<x INT NOT NULL>, m MAP<STRING, INT NOT NULL>)")
    run("CREATE TABLE t AS SELECT * FROM s")
    types = [row[1] for row in run("DESCRIBE t")]
    assert types == ["INT", "ARRAY<INT>", "ROW<x INT>", "MAP<STRING NOT NULL, INT>"]


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


def test_words_of_the_users_are_kept_as_properties_and_options_with_slips_are_not(run: Run) -> None:
    run("CREATE TABLE t (a INT, b BINARY) TBLPROPERTIES ('k1'='v1', 'owner'='me'); INSERT INTO t VALUES (1, X'00')")
    run("ALTER TABLE t SET TBLPROPERTIES ('team'='x')")
    assert run("SHOW TBLPROPERTIES t") == [("k1", "v1"), ("owner", "me"), ("team", "x")]
    run("ALTER TABLE t SET TBLPROPERTIES ('my.own-key'='y', `team name`='z'); ALTER TABLE t UNSET TBLPROPERTIES ('k1')")
    shown = dict(run("SHOW TBLPROPERTIES t"))
    assert shown == {"my.own-key": "y", "owner": "me", "team": "x", "team name": "z"}
    assert run("DESCRIBE t")[1][:2] == ("b", "BYTES") and run("SELECT b FROM t") == [b"\0"]
    for key, near in (
        ("bukcet", "bucket"),
        ("Bucket", "bucket"),
        ("file-fromat", "file.format"),
        ("snapshot.prop", "snapshot"),
        ("buckets.key", "bucket-key"),
    ):
        with pytest.raises(OptionError, match=f"unknown table option '{key}'.*{near}"):
            run(f"CREATE TABLE u (a INT) TBLPROPERTIES ('{key}'='1')")


def test_a_table_gets_a_comment_and_loses_it(orders: Run) -> None:
    orders("COMMENT ON TABLE t IS 'mine'")
    assert "COMMENT 'mine'" in orders("SHOW CREATE TABLE t")[0]
    orders("COMMENT ON TABLE t IS NULL")
    assert "COMMENT" not in orders("SHOW CREATE TABLE t")[0]
    with pytest.raises(OptionError, match="tables have a comment; for a column use ALTER TABLE"):
        orders("COMMENT ON COLUMN t.v IS 'x'")


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


def test_columns_that_only_paimons_spark_has_are_refused_by_name(orders: Run) -> None:
    with pytest.raises(OptionError, match=r"'__paimon_file_path'.*is not read; `t\$files` lists files"):
        orders("SELECT __paimon_file_path FROM t")


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
