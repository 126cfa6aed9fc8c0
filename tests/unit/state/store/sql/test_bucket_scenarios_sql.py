"""Stories about buckets and the key index as SQL text: what a table holds after each statement, files included."""

import shutil
from datetime import datetime
from pathlib import Path

import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.state.errors import CorruptFileError
from bucketline.state.store.table.write import write_table
from tests.support.pages.sql_text import Run, snapshots
from tests.support.tables.worlds import handle_in


@pytest.mark.parametrize(
    "columns",
    [
        "(pk INT, v INT) TBLPROPERTIES ('primary-key'='pk', {})",
        "(pk INT, v INT, PRIMARY KEY (pk) NOT ENFORCED) WITH ({})",
        "(pk INT PRIMARY KEY NOT ENFORCED, v INT) USING paimon OPTIONS ({})",
    ],
)
def test_the_target_bounds_dynamic_buckets_and_means_nothing_for_fixed_ones(run: Run, columns: str) -> None:
    target = "'dynamic-bucket.target-row-num'='3'"
    dynamic, fixed = (columns.format(f"'bucket'='{count}', {target}") for count in (-1, 1))
    run(f"CREATE TABLE d {dynamic}; INSERT INTO d VALUES (1, 1), (2, 1)")
    run("INSERT INTO d SELECT * FROM VALUES (3, 1), (4, 1), (5, 1); INSERT INTO d (v, pk) VALUES (2, 5)")
    index = "SELECT index_type, bucket, row_count FROM `d$table_indexes` ORDER BY bucket"
    assert run(index) == [("HASH", 0, 3), ("HASH", 1, 2)]
    assert run("SELECT count(*), sum(v) FROM d") == [(5, 6)]
    run(f"CREATE TABLE f {fixed}")
    run("INSERT INTO f VALUES (1, 1), (2, 1), (3, 1), (4, 1), (5, 1)")
    assert run("SELECT bucket, record_count FROM `f$files`") == [(0, 5)]
    assert run("SELECT * FROM `f$table_indexes`") == []


def test_a_key_with_its_partition_may_be_in_each_partition_and_has_an_index_there(run: Run) -> None:
    run(
        "CREATE TABLE c (pk INT, v INT, pt INT, PRIMARY KEY (pk, pt) NOT ENFORCED) PARTITIONED BY (pt) "
        "WITH ('bucket'='-1', 'dynamic-bucket.target-row-num'='2');"
        "INSERT INTO c VALUES (1,10,1), (2,20,1), (3,30,1), (4,40,1); INSERT INTO c VALUES (1,11,2)"
    )
    assert run("SELECT * FROM c ORDER BY pk, pt") == [(1, 10, 1), (1, 11, 2), (2, 20, 1), (3, 30, 1), (4, 40, 1)]
    index = "SELECT partition, bucket, index_type, row_count FROM `c$table_indexes` ORDER BY partition, bucket"
    assert run(index) == [("{1}", 0, "HASH", 2), ("{1}", 1, "HASH", 2), ("{2}", 0, "HASH", 1)]
    assert snapshots(run, "c") == [("APPEND", 4, 4), ("APPEND", 5, 1)]
    run("INSERT INTO c VALUES (4,41,1), (1,12,2)")
    assert run("SELECT sum(row_count) FROM `c$table_indexes`") == [5]
    assert run("SELECT v FROM c WHERE pk = 4 OR pt = 2 ORDER BY v") == [12, 41]


def test_a_moved_key_leaves_a_delete_record_and_no_hash_index(run: Run) -> None:
    run(
        "CREATE TABLE c (pk INT, v INT, pt INT, PRIMARY KEY (pk) NOT ENFORCED) PARTITIONED BY (pt) WITH ("
        "'bucket'='-1', 'dynamic-bucket.target-row-num'='2');"
        "INSERT INTO c VALUES (1,10,1), (2,20,1), (3,30,1), (4,40,1); INSERT INTO c VALUES (1,11,2)"
    )
    assert run("SELECT * FROM c ORDER BY pk") == [(1, 11, 2), (2, 20, 1), (3, 30, 1), (4, 40, 1)]
    deletes = "SELECT partition, sum(deleteRowCount) FROM `c$files` GROUP BY partition ORDER BY partition"
    assert run(deletes) == [("{1}", 1), ("{2}", 0)]
    assert run("SELECT * FROM `c$table_indexes` WHERE index_type = 'HASH'") == []
    assert snapshots(run, "c") == [("APPEND", 4, 4), ("APPEND", 6, 2)]


class LongAgo:
    """A clock that stands at a time long past."""

    def now_ms(self) -> int:
        return round(datetime(2023, 11, 14).timestamp() * 1000)

    def local_ms(self) -> int:
        return self.now_ms()


def test_keys_older_than_their_time_to_live_are_not_found_again(run: Run, tmp_path: Path) -> None:
    run(
        "CREATE TABLE c (k INT, v INT, pt INT) PARTITIONED BY (pt) TBLPROPERTIES ("
        "'primary-key'='k', 'cross-partition-upsert.index-ttl'='1 d')"
    )
    table = bl.catalog(str(tmp_path)).table("default.c")
    old = {"local-directory": str(tmp_path / "old")}
    write_table(
        handle_in(table, clock=LongAgo()),
        bl.sql(None, "SELECT * FROM VALUES (1,10,1), (2,20,1) AS t(k, v, pt)"),
        options=old,
    )
    hint = f"/*+ OPTIONS('local-directory'='{tmp_path}/{{}}') */"
    run(f"INSERT INTO c {hint.format('a')} VALUES (3,30,1)")
    run(f"INSERT INTO c {hint.format('b')} VALUES (1,11,2), (3,31,2)")
    # Key 1 is there twice, as the option's users accept; key 3 was young enough to be moved.
    assert run("SELECT * FROM c ORDER BY k, pt") == [(1, 10, 1), (1, 11, 2), (2, 20, 1), (3, 31, 2)]
    assert run("INSERT INTO c VALUES (1,12,3); SELECT v FROM c WHERE k = 1 ORDER BY v") == [10, 12]


def test_the_key_index_is_built_once_and_no_statement_after_reads_data_files(run: Run, tmp_path: Path) -> None:
    run(
        "CREATE TABLE c (k INT, v INT, pt INT, PRIMARY KEY (k) NOT ENFORCED) PARTITIONED BY (pt) WITH ("
        "'bucket'='-1', 'write-only'='true')"
    )
    kept = f"SET spark.paimon.local-directory = '{tmp_path}/kept'"
    run(f"{kept}; INSERT INTO c VALUES (1,1,1), (2,1,2)")
    folder, aside = tmp_path / "default.db" / "c", tmp_path / "aside"
    for partition in ("pt=1", "pt=2"):
        shutil.copytree(folder / partition, aside / partition)
        shutil.rmtree(folder / partition)
    run("INSERT INTO c VALUES (1,2,2), (3,2,3); INSERT INTO c VALUES (2,2,1)")
    for partition in ("pt=1", "pt=2"):
        shutil.copytree(aside / partition, folder / partition, dirs_exist_ok=True)
    assert run("SELECT * FROM c ORDER BY k") == [(1, 2, 2), (2, 2, 1), (3, 2, 3)]
    # Elsewhere the index is built of the table's files, each key at its newest place.
    run(f"SET spark.paimon.local-directory = '{tmp_path}/elsewhere'; INSERT INTO c VALUES (1,3,3); RESET")
    assert run("SELECT * FROM c ORDER BY k") == [(1, 3, 3), (2, 2, 1), (3, 2, 3)]


def test_a_compaction_of_postponed_rows_is_one_snapshot_and_leaves_nothing_when_it_fails(
    run: Run, tmp_path: Path
) -> None:
    run(
        "CREATE TABLE p (k INT, v INT, pt INT, PRIMARY KEY (k, pt) NOT ENFORCED) PARTITIONED BY (pt) WITH ("
        "'bucket'='-2', 'postpone.default-bucket-num'='2', 'postpone.batch-write-fixed-bucket'='false');"
        "INSERT INTO p VALUES (1,10,1), (2,20,1); INSERT INTO p VALUES (3,30,2);"
        "INSERT INTO p /*+ OPTIONS('postpone.batch-write-fixed-bucket'='true') */ VALUES (4,40,3)"
    )
    folder = tmp_path / "default.db" / "p"

    def files(pattern: str = "bucket-*/*") -> set[Path]:
        return set(folder.rglob(pattern))

    waiting = "SELECT partition FROM `p$buckets` WHERE bucket = -2 ORDER BY partition"
    assert run(waiting) == ["{1}", "{2}"]
    assert run("SELECT partition, bucket, file_format FROM `p$files`") == [("{3}", 0, "parquet")]
    before = files()
    (damaged,) = files("pt=2/bucket-postpone/*.avro")
    content = damaged.read_bytes()
    damaged.write_bytes(content[:20])
    with pytest.raises(CorruptFileError, match=damaged.name):
        run("CALL sys.compact(table => 'p')")
    assert files() == before and len(snapshots(run, "p")) == 3
    damaged.write_bytes(content)
    run("CALL sys.compact(table => 'p')")
    assert snapshots(run, "p")[3:] == [("COMPACT", 4, 0)] and run(waiting) == []
    made = {str(path.relative_to(folder).parent) for path in files() - before}
    assert made <= {f"pt={p}/bucket-{b}" for p in (1, 2) for b in (0, 1)} and {m[:4] for m in made} == {"pt=1", "pt=2"}
    assert run("SELECT k FROM p ORDER BY k") == [1, 2, 3, 4]
    assert run("CALL sys.compact(table => 'p')") == [True] and len(snapshots(run, "p")) == 4
    with pytest.raises(OptionError, match="Only partition predicate is supported"):
        run("CALL sys.compact(table => 'p', where => 'k = 1')")
