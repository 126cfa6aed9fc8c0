"""Whole stories as SQL text, in Flink's spelling and Spark's: rows, files and snapshots after each statement."""

import pytest

from bucketline.conf.errors import OptionError
from tests.support.pages.sql_text import Run, snapshots


def test_a_full_compaction_leaves_one_file_for_each_partition_and_bucket(run: Run) -> None:
    run(
        "CREATE TABLE T (id INT, a STRING, pt STRING) PARTITIONED BY (pt) TBLPROPERTIES ('primary-key'='id,pt', "
        "'bucket'='3', 'write-only'='true', 'source.split.target-size'='128m', 'source.split.open-file-cost'='32m')"
    )
    run(";".join(f"INSERT INTO T VALUES ({i}, 'a', 'p{i % 2}')" for i in range(100)))
    assert run("CALL sys.compact(table => 'T')") == [True]
    files = run("SELECT level, partition, bucket, record_count FROM `T$files` ORDER BY partition, bucket")
    places = [(5, f"{{p{p}}}", b) for p in (0, 1) for b in (0, 1, 2)]
    assert files == [(*place, rows) for place, rows in zip(places, (19, 11, 20, 10, 19, 21), strict=True)]
    assert run("SELECT count(*) FROM T") == [100]
    assert snapshots(run, "T") == [*(("APPEND", n + 1, 1) for n in range(100)), ("COMPACT", 100, 0)]


@pytest.mark.parametrize("key", ["", "'primary-key'='id,pt', "])
def test_tables_without_a_bucket_count_have_one_file_for_each_partition_after_a_compaction(run: Run, key: str) -> None:
    options = f"{key}'bucket'='-1', 'write-only'='true'"
    run(f"CREATE TABLE T (id INT, pt STRING) PARTITIONED BY (pt) TBLPROPERTIES ({options})")
    run(";".join(f"INSERT INTO T VALUES ({i}, 'p{i % 2}')" for i in range(20)))
    run("CALL sys.compact(table => 'T')")
    level = 5 if key else 0
    files = run("SELECT partition, level, file_source, record_count FROM `T$files` ORDER BY partition")
    assert files == [("{p0}", level, "COMPACT", 10), ("{p1}", level, "COMPACT", 10)]
    assert snapshots(run, "T")[-2:] == [("APPEND", 20, 1), ("COMPACT", 20, 0)] and run("SELECT sum(id) FROM T") == [190]


def test_an_append_table_with_a_bucket_key_keeps_its_files(run: Run) -> None:
    run(
        "CREATE TABLE wo_pk_table (order_id BIGINT, price DECIMAL(32,2), ts TIMESTAMP(3)) "
        "WITH ('bucket'='2', 'bucket-key'='order_id');"
        "INSERT INTO wo_pk_table VALUES (1, 100.0, TIMESTAMP '2024-01-01 00:00:00');"
        "INSERT INTO wo_pk_table VALUES (2, 200.0, CAST('2024-01-01 00:00:00' AS TIMESTAMP(3))), (3, 300, NULL)"
    )
    files = "SELECT bucket, level, record_count, min_key FROM `wo_pk_table$files` ORDER BY bucket, min_sequence_number"
    assert run(files) == [(0, 0, 1, None), (0, 0, 1, None), (1, 0, 1, None)]
    assert snapshots(run, "wo_pk_table") == [("APPEND", 1, 1), ("APPEND", 3, 2)]
    with pytest.raises(OptionError, match="Cannot define 'bucket-key' with bucket = -1, please remove"):
        run("CREATE TABLE bad (a INT) WITH ('bucket'='-1', 'bucket-key'='a')")
    assert run("SHOW TABLES") == [("default", "wo_pk_table")]


def test_deletes_of_a_dynamic_table_are_gone_after_a_compaction_with_positional_arguments(run: Run) -> None:
    run(
        "CREATE TABLE with_pk_table (order_id BIGINT, price DECIMAL(32,2), PRIMARY KEY (order_id) NOT ENFORCED);"
        "INSERT INTO with_pk_table VALUES (1, 1);"
        "INSERT INTO with_pk_table VALUES (2, 2), (3, 3);"
        "INSERT INTO with_pk_table VALUES (4, 1), (5, 1), (6, 1), (7, 1);"
        "DELETE FROM with_pk_table WHERE order_id IN (2, 3)"
    )
    assert run("SELECT sum(deleteRowCount) FROM `with_pk_table$files`") == [2]
    run("CALL sys.compact('default.with_pk_table', '', '', '', '')")
    assert run("SELECT order_id FROM with_pk_table ORDER BY order_id") == [1, 4, 5, 6, 7]
    appended = [("APPEND", 1, 1), ("APPEND", 3, 2), ("APPEND", 7, 4), ("APPEND", 9, 2)]
    assert snapshots(run, "with_pk_table") == [*appended, ("COMPACT", 5, -4)]
    assert run("SELECT sum(row_count) FROM `with_pk_table$table_indexes`") == [7]


def test_dynamic_buckets_hold_as_many_keys_as_the_option_says(run: Run) -> None:
    run(
        "CREATE TABLE d (pk INT, v INT) TBLPROPERTIES ('primary-key'='pk', 'dynamic-bucket.target-row-num'='2');"
        "INSERT INTO d VALUES (1, 10)"
    )
    assert run("SELECT file_size, row_count FROM `d$table_indexes`") == [(4, 1)]
    run("INSERT INTO d VALUES (2, 1), (3, 1), (4, 1), (5, 1), (6, 1); INSERT INTO d VALUES (1, 11)")
    assert run("SELECT row_count FROM `d$table_indexes`") == [2, 2, 2]
    assert run("SELECT count(*), max(v) FROM d") == [(6, 11)]


def order(number: int, day: int) -> str:
    return f"({number}, {number}, '2023-10-{day:02}', 1.5, 'new')"


def test_postponed_rows_are_seen_after_a_compaction_and_hints_write_to_real_buckets(run: Run) -> None:
    fixed = "/*+ OPTIONS('postpone.batch-write-fixed-bucket'='true') */"
    table, orders = "postpone_bucket_table", "SELECT order_id FROM postpone_bucket_table {} ORDER BY order_id"
    run(
        f"CREATE TABLE {table} (order_id BIGINT, customer_id BIGINT, order_date STRING, total_amount DECIMAL(10,2), "
        "status STRING, PRIMARY KEY (order_date, order_id) NOT ENFORCED) PARTITIONED BY (order_date) WITH ("
        "'bucket'='-2', 'postpone.batch-write-fixed-bucket'='false', "
        "'postpone.default-bucket-num'='2', 'file.format'='parquet');"
        f"INSERT INTO {table} VALUES {order(1, 1)}, {order(2, 1)}, {order(3, 2)}"
    )
    assert run(orders.format("")) == [] and run(f"SELECT * FROM `{table}$files`") == []
    assert snapshots(run, table) == [("APPEND", 3, 3)]
    run(
        f"INSERT INTO {table} {fixed} VALUES {order(4, 2)};"
        f"INSERT INTO {table} {fixed} VALUES {order(5, 3)}, {order(6, 3)}"
    )
    assert run(orders.format("")) == [4, 5, 6]
    compact = f"CALL sys.compact(`table` => 'default.{table}', compact_strategy => 'full')"
    run(f"{compact}; {compact}")
    assert run(orders.format("")) == [1, 2, 3, 4, 5, 6]
    assert snapshots(run, table)[2:] == [("APPEND", 6, 2), ("COMPACT", 6, 0)]
    rescale = "CALL sys.rescale(`table` => 'default.{}', `bucket_num` => {}, `partition` => 'order_date=2023-10-{}')"
    run(rescale.format(table, 1, "02"))
    moved = f"SELECT level, record_count, min_key, max_key FROM `{table}$files` WHERE partition = '{{2023-10-02}}'"
    assert run(moved) == [(5, 2, "[3]", "[4]")] and snapshots(run, table)[-1] == ("OVERWRITE", 6, 0)
    run(
        f"INSERT INTO {table} {fixed} VALUES {order(7, 3)}; INSERT INTO {table} VALUES {order(8, 3)};"
        f"INSERT INTO {table} VALUES {order(9, 3)}; INSERT INTO {table} {fixed} VALUES {order(10, 3)}"
    )
    assert run(orders.format("")) == [1, 2, 3, 4, 5, 6, 7, 10]
    assert run(orders.format("/*+ OPTIONS('postpone.merge-on-read'='true') */")) == list(range(1, 11))
    assert [s[1] for s in snapshots(run, table)[-4:]] == [7, 8, 9, 10]
    run(rescale.format(table, 3, "03"))
    assert run(orders.format("")) == [1, 2, 3, 4, 5, 6, 7, 10]
    run(f"CALL sys.compact(`table` => '{table}', `partitions` => 'order_date=2023-10-03')")
    assert run(orders.format("")) == list(range(1, 11))


def test_a_delete_does_not_reach_postponed_rows_until_they_are_compacted(run: Run) -> None:
    run(
        "CREATE TABLE p (k INT, v INT, pt INT, PRIMARY KEY (k) NOT ENFORCED) PARTITIONED BY (pt) WITH ('bucket'='-2', "
        "'postpone.default-bucket-num'='2', 'postpone.batch-write-fixed-bucket'='false');"
        "INSERT INTO p VALUES (1,10,1), (2,20,1), (3,30,1), (4,40,1); DELETE FROM p WHERE k = 1"
    )
    assert len(snapshots(run, "p")) == 1
    run("INSERT INTO p VALUES (1,11,2); CALL sys.compact('default.p')")
    rows = [(1, 10, 1), (1, 11, 2), (2, 20, 1), (3, 30, 1), (4, 40, 1)]
    assert run("SELECT * FROM p ORDER BY k, pt") == rows and snapshots(run, "p")[-1] == ("COMPACT", 5, 0)
    run("DELETE FROM p WHERE k = 1; CALL sys.compact('default.p')")
    assert run("SELECT * FROM p ORDER BY k, pt") == rows[2:]


@pytest.mark.parametrize(
    ("engine", "row"),
    [
        ("'deduplicate'", (1, 11, 2)),
        ("'partial-update'", (1, 11, 1)),
        ("'aggregation', 'fields.v.aggregate-function'='sum'", (1, 21, 1)),
        ("'first-row'", (1, 10, 1)),
    ],
)
def test_a_key_of_a_cross_partition_table_is_in_one_partition(run: Run, engine: str, row: tuple[int, ...]) -> None:
    run(
        "CREATE TABLE c (pk INT, v INT, pt INT) PARTITIONED BY (pt) "
        f"TBLPROPERTIES ('primary-key'='pk', 'bucket'='-1', 'merge-engine'={engine});"
        "INSERT INTO c VALUES (1,10,1), (2,20,1); INSERT INTO c VALUES (1,11,2)"
    )
    assert run("SELECT * FROM c ORDER BY pk") == [row, (2, 20, 1)]


def test_a_fixed_partition_keeps_its_number_of_buckets(run: Run) -> None:
    run(
        "CREATE TABLE f (pk INT, v INT, pt INT) PARTITIONED BY (pt) TBLPROPERTIES ('primary-key'='pk', 'bucket'='2');"
        "INSERT INTO f VALUES (1,10,1), (2,20,1), (3,30,1), (4,40,1); DELETE FROM f WHERE pk=1;"
        "INSERT INTO f VALUES (1,11,2); DELETE FROM f WHERE pk=1; INSERT INTO f VALUES (1,12,3)"
    )
    assert run("SELECT * FROM f ORDER BY pk") == [(1, 12, 3), (2, 20, 1), (3, 30, 1), (4, 40, 1)]
    assert [s[1] for s in snapshots(run, "f")] == [4, 5, 6, 7, 8]
    run("UPDATE f SET v = 13, pt = 4 WHERE pk = 1")  # keys are unique in a partition, as in Paimon
    assert run("SELECT * FROM f WHERE pk = 1 ORDER BY pt") == [(1, 12, 3), (1, 13, 4)]
    for key in (2, 3, 4):
        with pytest.raises(OptionError, match=r"new bucket num 4, but the previous bucket num is 2"):
            run(f"ALTER TABLE f SET ('bucket'='4'); INSERT INTO f VALUES ({key}, 9, 1)")


@pytest.mark.parametrize("buckets", [1, 2])
def test_files_say_their_levels_and_the_read_optimized_table_shows_the_last(run: Run, buckets: int) -> None:
    run(
        f"CREATE TABLE T (pk INT, v INT, pt INT, PRIMARY KEY (pk) NOT ENFORCED) WITH ('bucket'='{buckets}');"
        "SET 'execution.runtime-mode' = 'batch';"
        "INSERT INTO T VALUES (1,10,1), (2,20,1), (3,30,1), (4,40,1); INSERT INTO T VALUES (1,11,1);"
        "CALL sys.compact('default.T'); INSERT INTO T VALUES (5,50,1); INSERT INTO T VALUES (6,60,1)"
    )
    columns = "bucket, level, file_source, record_count, min_key, max_key, min_sequence_number, max_sequence_number"
    files = run(f"SELECT {columns} FROM `T$files` ORDER BY level DESC, bucket, min_sequence_number")
    if buckets == 1:
        assert files == [
            (0, 5, "COMPACT", 4, "[1]", "[4]", 1, 4),
            (0, 0, "APPEND", 1, "[5]", "[5]", 5, 5),
            (0, 0, "APPEND", 1, "[6]", "[6]", 6, 6),
        ]
    else:
        assert files == [
            (0, 5, "COMPACT", 3, "[1]", "[4]", 1, 3),
            (1, 5, "APPEND", 1, "[3]", "[3]", 0, 0),
            (0, 0, "APPEND", 1, "[5]", "[5]", 4, 4),
            (0, 0, "APPEND", 1, "[6]", "[6]", 5, 5),
        ]
    stats = (
        "SELECT min_value_stats, deleteRowCount, first_row_id, write_cols FROM `T$files` WHERE level = 5 AND bucket = 0"
    )
    assert run(stats) == [("{pk=1, pt=1, v=11}", 0, None, None)]
    assert run("SELECT pk, v FROM T ORDER BY pk") == [(1, 11), (2, 20), (3, 30), (4, 40), (5, 50), (6, 60)]
    assert run("SELECT pk, v FROM `T$ro` ORDER BY pk") == [(1, 11), (2, 20), (3, 30), (4, 40)]
    assert [s[0] for s in snapshots(run, "T")] == ["APPEND", "APPEND", "COMPACT", "APPEND", "APPEND"]
    assert [s[1:] for s in snapshots(run, "T")] == [(4, 4), (5, 1), (4, -1), (5, 1), (6, 1)]
    with pytest.raises(OptionError, match="unknown column 'level'"):
        run("SELECT * FROM `T$snapshots` ORDER BY level")


def test_deletion_vectors_hide_rows_at_once_and_level_0_until_a_compaction(run: Run) -> None:
    vectors = "'primary-key'='pk', 'bucket'='1', 'deletion-vectors.enabled'='true'"
    rows = "(1,10), (2,20), (3,30), (4,40)"
    run(
        f"CREATE TABLE a (pk INT, v INT) TBLPROPERTIES ({vectors}); INSERT INTO a VALUES {rows};"
        "DELETE FROM a WHERE pk > 2"
    )
    assert snapshots(run, "a") == [("APPEND", 4, 4), ("COMPACT", 4, 0), ("APPEND", 6, 2), ("COMPACT", 4, -2)]
    assert run("SELECT level, record_count FROM `a$files`") == [(5, 4)]
    assert run("SELECT * FROM a") == [(1, 10), (2, 20)]
    ((index, ranges),) = run("SELECT index_type, dv_ranges FROM `a$table_indexes`")
    assert (index, [r["_CARDINALITY"] for r in ranges]) == ("DELETION_VECTORS", [2])
    assert run("SELECT deleted_record_count FROM `a$partitions`") == [2]
    with pytest.raises(OptionError, match="Cannot change deletion vectors mode from true to false"):
        run("ALTER TABLE a SET TBLPROPERTIES ('deletion-vectors.enabled'='false')")
    run(f"CREATE TABLE b (pk INT, v INT) TBLPROPERTIES ({vectors}, 'write-only'='true'); INSERT INTO b VALUES {rows}")
    assert run("SELECT * FROM b") == []
    run("CALL sys.compact(table => 'b')")
    assert run("SELECT level, file_source FROM `b$files`") == [(5, "APPEND")]
    assert run("UPDATE b SET v = 11 WHERE pk = 1; SELECT v FROM b WHERE pk = 1") == [10]
    assert run("CALL sys.compact(table => 'b'); SELECT v FROM b WHERE pk = 1") == [11]
    assert snapshots(run, "b") == [("APPEND", 4, 4), ("COMPACT", 4, 0), ("APPEND", 5, 1), ("COMPACT", 4, -1)]
    assert run("SELECT level, file_source, min_sequence_number FROM `b$files`") == [(5, "COMPACT", 1)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("partitions => 'pt=1', where => 'pt=1'", "partitions and where cannot be used together."),
        ("partitions => 'id=1'", r"Partition keys \[id\] are invalid. Available partition keys are \[pt\]"),
        ("where => 'id=1'", r"Only partition predicate is supported, your predicate is id = 1, but .* are \[pt\]"),
        ("order_strategy => 'zorder', order_by => 'pt'", "order_by should not contain partition cols"),
        ("order_by => 'id'", 'order_strategy "none" cannot work with order_by columns.'),
        (
            "order_strategy => 'zorder', order_by => 'id', partition_idle_time => '1 d'",
            "sort compact do not support 'partition_idle_time'.",
        ),
        ("compact_strategy => 'foo'", "The compact strategy only supports 'full' or 'minor', but 'foo' is configured."),
        ("bucket => 1", "argument bucket is unknown; it takes table, partitions"),
    ],
)
def test_wrong_arguments_of_a_compaction_have_paimons_messages(run: Run, arguments: str, message: str) -> None:
    run("CREATE TABLE T (id INT, pt INT) PARTITIONED BY (pt) TBLPROPERTIES ('primary-key'='id,pt', 'bucket'='1')")
    with pytest.raises(OptionError, match=message):
        run(f"CALL sys.compact(table => 'T', {arguments})")


def test_a_compaction_by_call_sorts_an_append_table(run: Run) -> None:
    run("CREATE TABLE s (a INT, b INT); INSERT INTO s VALUES (3, 1), (1, 1); INSERT INTO s VALUES (2, 1)")
    run("CALL sys.compact(table => 's', order_strategy => 'order', order_by => 'a')")
    assert run("SELECT a FROM s") == [1, 2, 3]
    assert run("SELECT commit_kind FROM `s$snapshots`") == ["APPEND", "APPEND", "COMPACT"]
