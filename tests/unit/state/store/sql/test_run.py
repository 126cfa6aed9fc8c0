"""Statements without Spark that define databases, tables, columns and tags; procedures; and what lasts in a session."""

from pathlib import Path

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.state.errors import DatabaseNotFoundError, SchemaMismatchError, TableNotFoundError
from tests.support.pages.sql_text import Run


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
        ("DROP TABLE `t$files`", "a branch cannot be dropped by DROP TABLE"),
        ("INSERT INTO `t$files` VALUES (1)", "is a system table, which cannot be changed"),
        ("SELECT * FROM `t$file`", r"there is no system table 'file'; did you mean 'files'"),
        ("SHOW PARTITIONS u", "has no partition columns"),
        ("ALTER TABLE `t$files` ADD x INT", "is a system table, which cannot be changed"),
        ("ALTER TABLE `t$files` CREATE TAG x", "is a system table, which cannot be changed"),
        ("ALTER TABLE t RENAME TO `u$files`", "is a system table, which cannot be changed"),
        ("CALL sys.compact('t$files')", "is a system table, which cannot be changed"),
        ("MERGE INTO `t$files` USING u ON k = a WHEN MATCHED THEN DELETE", "which cannot be changed"),
        ("SELECT k FROM t ORDER BY 2", "ORDER BY 2: the result has no such column"),
        ("CALL sys.run_compactor('t', 'soon')", "wait = 'soon': not a duration"),
        ("SHOW PARTITIONS t PARTITION (v = 1)", "'v' is not a partition column"),
        ("ALTER TABLE t DELETE TAG nothing", r"Tag 'nothing' doesn't exist; there are"),
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
    with pytest.raises(OptionError, match="no warehouse is known"):
        bl.sql(None, "SHOW TABLES")
    with pytest.raises(OptionError, match="contains no statement"):
        bl.sql(None, " ; -- nothing")


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
    with pytest.raises(OptionError, match="branch 'b' has no snapshot"):
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
        ("REPLACE TAG x", r"Tag 'x' doesn't exist; there are"),
        ("RENAME TAG x TO w", r"Tag 'x' doesn't exist; there are"),
        ("RENAME TAG y TO z", r"Tag 'z' already exists\."),
        ("RENAME TAG y TO `a/b`", "cannot hold '/'"),
        ("REPLACE TAG y AS OF VERSION 99", "has no snapshot 99; there are snapshots 1 to "),
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
    with pytest.raises(OptionError, match="COMMENT ON supports only tables; for a column use ALTER TABLE"):
        orders("COMMENT ON COLUMN t.v IS 'x'")
