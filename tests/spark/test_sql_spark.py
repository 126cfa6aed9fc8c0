"""SQL over a Spark session: Spark runs the queries, everything else is done as without it."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.sql.parse import parse_script
from bucketline.state.sql.statement import Query
from bucketline.state.store.sql.run import run_statement
from bucketline.state.store.sql.session import SqlSession
from bucketline.streaming.batch.failure import SparkFailedError
from bucketline.streaming.cli.commands import program
from bucketline.streaming.sql.spark_queries import SparkQueries

pytestmark = pytest.mark.spark


def test_spark_runs_queries_over_tables_as_they_are_written(spark: SparkSession, tmp_path: Path) -> None:
    def run(text: str) -> list[Any]:
        return [tuple(row) if len(row) > 1 else row[0] for row in bl.sql(spark, text, str(tmp_path)).collect()]

    made = run(
        "CREATE TABLE orders (id INT, customer INT, amount DECIMAL(10,2), dt STRING, "
        "PRIMARY KEY (id, dt) NOT ENFORCED) PARTITIONED BY (dt) WITH ('bucket'='2'); CREATE DATABASE shop;"
        "CREATE TABLE shop.customers (id INT PRIMARY KEY NOT ENFORCED, name STRING) WITH ('bucket'='1');"
        "INSERT INTO shop.customers VALUES (1, 'Ada'), (2, 'Grace');"
        "INSERT INTO orders VALUES (1, 1, 10.5, 'a'), (2, 2, 20, 'a'), (3, 1, 30, 'b')"
    )
    assert made == [1]
    join = (
        "SELECT c.name, sum(o.amount) AS total FROM orders o JOIN shop.customers c ON o.customer = c.id "
        "GROUP BY c.name HAVING sum(o.amount) > 1 ORDER BY total DESC"
    )
    assert [(name, float(total)) for name, total in run(join)] == [("Ada", 40.5), ("Grace", 20.0)]
    assert run("INSERT INTO orders SELECT id + 10, customer, amount * 2, 'c' FROM orders WHERE dt = 'a'") == [2]
    run("CREATE TABLE e (k BIGINT, at TIMESTAMP(3), v DECIMAL(5,1), pt STRING) PARTITIONED BY (pt)")
    run("INSERT INTO e PARTITION (pt = 'x') SELECT 1, TIMESTAMP '2024-01-01 00:00:00.123', 2.25 FROM range(2)")
    run("INSERT INTO e (pt, k) SELECT 'y', id FROM range(3)")
    found = run("SELECT pt, count(*), max(cast(at AS STRING)), max(v) FROM e GROUP BY pt ORDER BY pt")
    assert [(*row[:3], str(row[3])) for row in found] == [
        ("x", 2, "2024-01-01 00:00:00.123", "2.3"),
        ("y", 3, None, "None"),
    ]
    with pytest.raises(SchemaMismatchError, match="2 values for 4 columns"):
        run("INSERT INTO e SELECT 1, 2 FROM range(1)")
    run("SET spark.sql.ansi.enabled = false")  # casts would store other numbers, or nulls
    for value in ("1e300 * (id + 1)", "concat('x', id)"):
        with pytest.raises(SparkFailedError, match="column k bigint cannot hold"):
            run(f"INSERT INTO e (pt, k) SELECT 'z', {value} FROM range(1)")
    assert run("INSERT INTO e (pt, k, v) SELECT 'z', concat(id, '1'), NULL FROM range(1)") == [3]
    run("CREATE TABLE deep (a ARRAY<TINYINT>, m MAP<STRING, SMALLINT>, r ROW<x TINYINT, y ARRAY<INT>>)")
    deep = (
        "INSERT INTO deep SELECT array({0}, NULL), map('k', {0}), named_struct('x', {0}, 'y', array({0})) FROM range(1)"
    )
    for too_much in ("300, 1", "'x'"):
        with pytest.raises(SparkFailedError, match="column a tinyint cannot hold"):
            run(f"INSERT INTO deep (a) SELECT array({too_much}) FROM range(1)")
    for name, value in (("m", "map('k', 70000)"), ("r", "named_struct('x', 300, 'y', array(1))")):
        with pytest.raises(SparkFailedError, match=f"column {name} (small|tiny)int cannot hold"):
            run(f"INSERT INTO deep ({name}) SELECT {value} FROM range(1)")
    assert run(deep.format("id + 7") + "; INSERT INTO deep SELECT NULL, NULL, NULL FROM range(1)") == [2]
    assert run("SELECT * FROM deep WHERE a IS NOT NULL") == [([7, None], {"k": 7}, (7, [7]))]
    run("DROP TABLE deep")
    run("SET spark.sql.ansi.enabled = true")
    run("DROP TABLE e; CREATE TABLE z (k INT, at TIMESTAMP_LTZ(6))")
    instant = "INSERT INTO z VALUES (1, TIMESTAMP '2024-01-01 00:00:00'); SELECT unix_seconds(at) FROM z"
    assert run(instant) == [1704067200]  # the session is in UTC
    run("DROP TABLE z")
    assert run("SHOW TABLES IN shop LIKE 'nothing'") == []
    assert run("SELECT 'it''s' FROM orders WHERE 'it''s' = 'it\\'s' LIMIT 1") == ["it's"]
    assert run("SELECT count(*) FROM orders TABLESAMPLE (100 PERCENT)") == [5]
    hint = "/*+ OPTIONS('scan.snapshot-id'='2') */"
    assert run(f"SELECT orders.id FROM default.orders {hint} WHERE orders.amount > 15 ORDER BY 1") == [2, 3, 11, 12]
    between = "/*+ OPTIONS('incremental-between'='1,2') */"
    assert run(f"SELECT id FROM orders {between} WHERE amount > 20 ORDER BY id") == [11, 12]
    assert run(f"SELECT rowkind, dt, id FROM orders$audit_log {between} ORDER BY id")[0] == ("+I", "c", 11)
    joined = "WITH x AS (SELECT * FROM orders VERSION AS OF 1) SELECT count(*) FROM x JOIN orders USING (id)"
    assert run(joined) == [3]
    files = "SELECT min(f.level), max(s.snapshot_id) FROM `orders$files` f CROSS JOIN orders$snapshots s"
    assert run(files) == [(0, 2)]
    assert run("SELECT DISTINCT typeof(commit_time) FROM orders$snapshots") == ["timestamp_ntz"]
    assert run("CALL sys.compact(`table` => 'default.orders'); SELECT count(*) FROM `orders$ro`") == [5]
    spark.range(3).createOrReplaceTempView("numbers")
    assert run("SELECT o.id FROM orders o LEFT ANTI JOIN numbers n ON o.id = n.id ORDER BY 1") == [3, 11, 12]
    source = "(SELECT id, dt, 1 AS amount FROM orders JOIN numbers USING (id))"
    on = "ON t.id = s.id AND t.dt = s.dt"
    run(f"MERGE INTO orders t USING {source} s {on} WHEN MATCHED THEN UPDATE SET amount = s.amount")
    assert run("SELECT sum(amount) FROM orders WHERE id < 3") == [2]
    assert run("UPDATE orders SET amount = amount + 1 WHERE id = 1; DELETE FROM orders WHERE id = 2") == [6]
    assert run("CREATE TABLE big WITH ('primary-key'='id') AS SELECT id, max(amount) m FROM orders GROUP BY id") == [1]
    assert bl.sql(None, "SELECT count(*) AS n FROM big", str(tmp_path)).to_pylist() == [{"n": 4}]
    run("SET spark.sql.shuffle.partitions = 3; SET spark.paimon.scan.snapshot-id = 1")
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3" and run("SELECT count(*) FROM orders") == [3]
    run("SET spark.sql.shuffle.partitions = 2; RESET")
    assert [row for row in run("SHOW TABLES")] == [("default", "big"), ("default", "orders")]
    run("CREATE TABLE clock (id INT, at TIME, dt STRING) PARTITIONED BY (dt); INSERT INTO clock VALUES (1, NULL, 'a')")
    run("INSERT INTO clock VALUES (2, NULL, 'b')")
    next((tmp_path / "default.db" / "clock" / "dt=b").glob("*/data-*")).unlink()
    narrowed = "SELECT c.id FROM clock c JOIN orders o ON c.id = o.id WHERE c.dt = 'a'"
    assert run(narrowed) == [1]  # neither the column that Spark has no type for nor the lost file is read
    run("DROP TABLE clock")
    lazy = bl.sql(spark, "SELECT id FROM orders WHERE dt = 'b'", str(tmp_path))
    assert lazy.schema.simpleString() == "struct<id:int>"
    assert [v.name for v in spark.catalog.listTables()] == ["numbers"]
    spark.catalog.dropTempView("numbers")
    text = "SELECT max(o.id) AS m FROM big o JOIN orders p USING (id)"
    printed = CliRunner().invoke(
        program, ["sql", "--spark", "--warehouse", str(tmp_path), "-e", text, "--format", "csv"]
    )
    assert printed.stdout.splitlines() == ["m", "12"], printed.stderr
    with pytest.raises(OptionError, match=r"Spark cannot run the query: .*nothing"):
        run("SELECT nothing FROM orders")
    with pytest.raises(OptionError, match="there is no system table 'file'"):
        run("SELECT * FROM `orders$file`")


class _InTasks(SparkQueries):
    """Notes the queries whose rows come to this process."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__(spark)
        self.asked: list[str] = []

    def rows(self, session: SqlSession, query: Query) -> pa.RecordBatchReader:
        self.asked.append(query.text)
        return super().rows(session, query)


STORY = (
    "CREATE TABLE f (pk INT, v INT, pt INT, PRIMARY KEY (pk) NOT ENFORCED) WITH ('bucket'='2')",
    "INSERT INTO f VALUES (1,10,1), (2,20,1), (3,30,1), (4,40,1); INSERT INTO f VALUES (1,11,1)",
    "CALL sys.compact('default.f')",
    "INSERT INTO f SELECT pk + 4, v, pt FROM f WHERE pk < 3",
    "UPDATE f SET v = v + 1 WHERE pk IN (2, 5); DELETE FROM f WHERE pk = 4",
    "MERGE INTO f USING (SELECT 3 AS pk, 33 AS v, 1 AS pt) s ON f.pk = s.pk "
    "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (pk, v, pt) VALUES (s.pk, s.v, s.pt)",
    "CREATE TABLE d (pk INT, v INT, pt INT) PARTITIONED BY (pt) TBLPROPERTIES ('primary-key'='pk,pt', 'bucket'='1', "
    "'deletion-vectors.enabled'='true')",
    "INSERT INTO d VALUES (1,10,1), (2,20,1), (3,30,2); UPDATE d SET v = 11 WHERE pk = 1; DELETE FROM d WHERE pk > 2",
    "CREATE TABLE p (k INT, v INT, pt INT, PRIMARY KEY (k, pt) NOT ENFORCED) PARTITIONED BY (pt) WITH ('bucket'='-2', "
    "'postpone.default-bucket-num'='2', 'postpone.batch-write-fixed-bucket'='false')",
    "INSERT INTO p VALUES (1,10,1), (2,20,1), (3,30,2)",
    "CALL sys.compact(table => 'p', partitions => 'pt=1')",
    "CALL sys.compact(`table` => 'default.p', compact_strategy => 'full')",
    "CALL sys.rescale(`table` => 'default.p', `bucket_num` => 1, `partition` => 'pt=1')",
    "CREATE TABLE c (k INT, v INT, pt INT) PARTITIONED BY (pt) TBLPROPERTIES ('primary-key'='k', "
    "'dynamic-bucket.assigner-parallelism'='1')",
    "INSERT INTO c VALUES (1,10,1), (2,20,1); INSERT INTO c VALUES (1,11,2)",
    "CREATE TABLE w (k INT, v INT, pt INT) TBLPROPERTIES ('primary-key'='k', 'bucket'='1', 'write-only'='true')",
    "INSERT INTO w VALUES (1, 1, 1), (2, 1, 1); INSERT INTO w (k, v) VALUES (1, 2)",
    "CALL sys.plan_compaction(table => 'w', compact_strategy => 'full'); CALL sys.run_compactor('w')",
    "INSERT OVERWRITE d PARTITION (pt = 2) SELECT pk + 10, v FROM f WHERE pk < 6",
    "MERGE INTO d USING (SELECT pk AS `id.of`, v, v AS V2, 1 AS one FROM f) s ON d.pk = s.`id.of` AND d.pt = 1 "
    "AND s.v > d.v - 100 WHEN MATCHED AND s.one + d.v = 21 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v + d.v "
    "WHEN NOT MATCHED AND s.V2 > 11 THEN INSERT (pk, v, pt) VALUES (s.`id.of`, s.v, 1) "
    "WHEN NOT MATCHED BY SOURCE AND d.pk > 14 THEN UPDATE SET v = 0",
    "INSERT OVERWRITE f SELECT pk, v + 1, pt FROM f WHERE pk <> 6",
    "INSERT INTO c SELECT pk, v, 3 FROM f WHERE pk < 3; INSERT OVERWRITE c SELECT pk, v, 4 FROM f WHERE pk > 1",
    "CREATE TABLE a (`k.of` INT, v INT, at TIME(0), n STRING) WITH ('deletion-vectors.enabled'='true')",
    "INSERT INTO a SELECT /*+ COALESCE(1) */ pk, v, NULL, 'x' FROM f",
    "INSERT INTO a (n, `k.of`) SELECT 'y', 8 FROM f WHERE pk = 1",
    "UPDATE a SET v = v * 2 WHERE `k.of` = 2; DELETE FROM a WHERE v + `k.of` > 40",
    "MERGE INTO a t USING f AS s (k, w, p) ON t.`k.of` = s.k + 1 WHEN MATCHED THEN UPDATE SET v = w + p",
    "CREATE TABLE b (v INT, pt INT, k INT); INSERT INTO b SELECT v, pt, k + 1 FROM w; INSERT INTO b BY NAME TABLE w",
    "DELETE FROM b WHERE k = v; UPDATE b SET v = 5 WHERE k = 3",
    "CREATE TABLE e AS SELECT /*+ COALESCE(1) */ k, v FROM b",
    "CREATE TABLE m (k INT PRIMARY KEY NOT ENFORCED, v INT) WITH ('bucket'='-2', 'postpone.merge-on-read'='true', "
    "'postpone.batch-write-fixed-bucket'='false'); INSERT INTO m SELECT k, v FROM b; DELETE FROM m WHERE k = 3",
    "MERGE INTO m USING b ON m.k = b.k WHEN MATCHED THEN UPDATE SET v = 9",
)
SHOWN = (
    "SELECT * FROM {}",
    "SELECT * FROM `{}$ro`",
    "SELECT partition, bucket, level, record_count, file_source, deleteRowCount, min_key, max_key, "
    "min_sequence_number, max_sequence_number FROM `{}$files`",
    "SELECT snapshot_id, commit_kind, total_record_count, delta_record_count FROM `{}$snapshots`",
    "SELECT partition, bucket, index_type, row_count FROM `{}$table_indexes`",
)


def test_statements_leave_the_same_tables_with_spark_and_without(spark: SparkSession, tmp_path: Path) -> None:
    without, beside = str(tmp_path / "without"), str(tmp_path / "with")
    session, in_tasks = SqlSession.at(bl.catalog(beside)), _InTasks(spark)
    for text in STORY:
        bl.sql(None, text, without)
        for _, statement in parse_script(text):
            run_statement(session, statement, in_tasks)
    assert in_tasks.asked == ["SELECT * FROM b"]  # for the table whose postponed rows are read: this process merges
    for text in SHOWN:
        # Tasks may merge rows in another order.
        plain = text.replace(", min_sequence_number, max_sequence_number", "")
        queries = {table: (plain if table == "d" else text).format(table) for table in "fdpcwabem"}
        expected = {t: bl.sql(None, query, without).to_pylist() for t, query in queries.items()}
        for table in "dabem":
            found = bl.sql(None, queries[table], beside).to_pylist()
            assert sorted(map(repr, found)) == sorted(map(repr, expected[table])), queries[table]
        together = " UNION ALL ".join(f"SELECT '{t}', * FROM ({queries[t]})" for t in "fpcw")
        rows = [(t, *row.values()) for t in "fpcw" for row in expected[t]]
        assert sorted(repr(tuple(row)) for row in bl.sql(spark, together, beside).collect()) == sorted(map(repr, rows))
        assert any(expected.values())
    with pytest.raises(OptionError, match="UNRESOLVED_COLUMN"):
        bl.sql(spark, "SELECT * FROM f$snapshots ORDER BY level", beside)


def test_spark_computes_queries_inside_of_updates_and_deletes(spark: SparkSession, tmp_path: Path) -> None:
    def rows(text: str) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in bl.sql(None, text, str(tmp_path)).to_pylist()]

    rows(
        "CREATE TABLE t (k INT, v INT DEFAULT 7, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket'='1');"
        "CREATE TABLE s (k INT, n INT) WITH ('row-tracking.enabled'='true');"
        "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3), (4, 4); INSERT INTO s VALUES (2, 20), (3, 30)"
    )
    update = "UPDATE t AS x SET v = (SELECT max(n) FROM s) WHERE EXISTS (SELECT * FROM s WHERE s.k = x.k AND s.n < 25)"
    bl.sql(spark, update, str(tmp_path))
    assert rows("SELECT * FROM t ORDER BY k") == [(1, 1), (2, 30), (3, 3), (4, 4)]


def test_spark_reads_and_merges_ids_of_rows_and_reads_the_changes_that_functions_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    create = "CREATE TABLE s (k INT, n INT) WITH ('row-tracking.enabled'='true')"
    bl.sql(None, f"{create}; INSERT INTO s VALUES (2, 20), (3, 30); INSERT INTO s VALUES (4, 40)", str(tmp_path))
    shown = bl.sql(spark, "SELECT *, s._ROW_ID FROM s WHERE n * 2 > 40", str(tmp_path))
    assert shown.columns == ["k", "n", "_ROW_ID"]
    assert sorted(map(tuple, shown.collect())) == [(3, 30, 1), (4, 40, 2)]
    shown = bl.sql(
        spark, "SELECT *, __paimon_bucket, __paimon_row_index FROM s WHERE __paimon_row_index = 1", str(tmp_path)
    )
    assert list(map(tuple, shown.collect())) == [(3, 30, 0, 1)]
    (path, part), *_ = bl.sql(
        spark, "SELECT __paimon_file_path, __paimon_partition FROM s LIMIT 1", str(tmp_path)
    ).collect()
    assert str(path).startswith(str(tmp_path)) and list(part) == []
    changed = bl.sql(spark, "SELECT s.k, n FROM paimon_incremental_query('s', 1, 2)", str(tmp_path))
    assert list(map(tuple, changed.collect())) == [(4, 40)]
    bl.sql(
        spark,
        "MERGE INTO s USING (SELECT k + 1 AS k, n + 1 AS n FROM s) c ON s.k = c.k WHEN MATCHED AND c.k = 4 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET n = c.n WHEN NOT MATCHED THEN INSERT *",
        str(tmp_path),
    )
    merged = bl.sql(spark, "SELECT k, n, _ROW_ID, _SEQUENCE_NUMBER FROM s ORDER BY k", str(tmp_path))
    assert list(map(tuple, merged.collect())) == [(2, 20, 0, 1), (3, 21, 1, 3), (5, 41, 3, 3)]
    create = "CREATE TABLE d (k INT, n INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket'='2')"
    bl.sql(
        None,
        f"{create}; INSERT INTO d VALUES (1, 1), (2, 2), (3, 3), (4, 4); CALL sys.create_tag('d', 'a');"
        "DELETE FROM d WHERE k = 1; UPDATE d SET n = 9 WHERE k = 2; INSERT INTO d VALUES (4, 4), (5, 5);"
        "CALL sys.create_tag('d', 'b')",
        str(tmp_path),
    )
    for table, expected in {"d": [(2, 9), (5, 5)], "d$audit_log": [("+I", 5, 5), ("+U", 2, 9), ("-D", 1, 1)]}.items():
        compared = bl.sql(spark, f"SELECT * FROM paimon_incremental_query('{table}', 'a', 'b')", str(tmp_path))
        assert sorted(map(tuple, compared.collect())) == expected
