"""Queries of what changed between two snapshots, by Paimon's options."""

import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import UnsupportedTableError
from bucketline.state.sql.relations import local_ms
from tests.support.pages.sql_text import Run

T = "SELECT k, v FROM t /*+ OPTIONS({}) */ ORDER BY k, v"


@pytest.fixture
def written(run: Run) -> Run:
    """Snapshots 1 and 2 are writes, 3 a compaction, 4 a delete and 5 an update of key 3."""
    run(
        "CREATE TABLE t (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket'='1', 'write-only'='true');"
        "INSERT INTO t VALUES (1,1), (2,2); INSERT INTO t VALUES (2,3), (3,3); CALL sys.compact('t');"
        "DELETE FROM t WHERE k = 1; UPDATE t SET v = 9 WHERE k = 3"
    )
    return run


def test_changes_between_two_snapshots_are_the_rows_that_were_written_after_the_first(written: Run) -> None:
    assert written(T.format("'incremental-between'='1,5'")) == [(2, 3), (3, 3), (3, 9)]
    assert written(T.format("'incremental-between'='0,2'")) == [(1, 1), (2, 2), (2, 3), (3, 3)]
    assert written(T.format("'incremental-between'='2,3'")) == []
    assert written(T.format("'incremental-between'='2,2'")) == []
    assert written("SELECT count(*) FROM t /*+ OPTIONS('incremental-between'='1,5') */ WHERE v > 3") == [1]
    log = "SELECT rowkind, k, v FROM `t$audit_log` /*+ OPTIONS('incremental-between'='3,5') */"
    assert written(log) == [("-D", 1, 1), ("+U", 3, 9)]
    written("SET spark.paimon.incremental-between = '2,5'")
    assert written("SELECT k, v FROM t") == [(3, 9)]
    written(
        "UPDATE t SET v = 10 WHERE k = 3; CALL sys.create_tag('t', 'a', 1); CALL sys.create_tag('t', 'b', 2); RESET"
    )
    assert written("SELECT k, v FROM t") == [(2, 3), (3, 10)]
    tags = "'incremental-between'='a,b', 'incremental-between-tag-to-snapshot'='true'"
    assert written(T.format(tags)) == [(2, 3), (3, 3)]
    times = written("SELECT commit_time FROM t$snapshots ORDER BY snapshot_id")
    (first, second), last = (str(local_ms(str(t))) for t in times[:2]), str(times[-1])
    between = "'incremental-between-timestamp'='{},{}'"
    assert written(T.format(between.format(first, second))) == [(2, 3), (3, 3)]
    assert written(T.format(between.format("2001-01-01", second))) == [(1, 1), (2, 2), (2, 3), (3, 3)]
    assert written(T.format(between.format("2001-01-01", "2001-01-02 10:00:00"))) == []
    assert written(T.format(between.format(times[4], last))) == [(3, 10)]


def test_the_files_that_changes_come_from_are_chosen(run: Run) -> None:
    run(
        "CREATE TABLE t (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket'='1', 'changelog-producer'='input');"
        "INSERT INTO t VALUES (1,1); UPDATE t SET v = 2"
    )
    log = "SELECT rowkind, v FROM t$audit_log /*+ OPTIONS('incremental-between'='1,2'{}) */"
    assert run(log.format("")) == [("-U", 1), ("+U", 2)]
    assert run(log.format(", 'incremental-between-scan-mode'='delta'")) == [("+U", 2)]
    assert run("SELECT v FROM t /*+ OPTIONS('incremental-between'='1,2') */") == [2]


def test_the_tables_of_two_tags_may_have_any_names_of_columns(run: Run) -> None:
    """The comparison adds a column of its own, which must not have the name of a column of the table."""
    run(
        "CREATE TABLE t (k INT, _TIME INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket'='1');"
        "INSERT INTO t VALUES (1, 1), (2, 2); CALL sys.create_tag('t', 'a');"
        "UPDATE t SET _TIME = 3 WHERE k = 1; CALL sys.create_tag('t', 'b')"
    )
    assert run("SELECT * FROM t /*+ OPTIONS('incremental-between'='a,b') */") == [(1, 3)]


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_two_tags_are_compared_key_by_key_whatever_was_committed_between(run: Run, vectors: str) -> None:
    run(
        "CREATE TABLE t (p INT, k INT, v DOUBLE, l ARRAY<INT>, PRIMARY KEY (p, k) NOT ENFORCED) PARTITIONED BY (p) "
        f"WITH ('bucket'='1', 'deletion-vectors.enabled'='{vectors}');"
        "INSERT INTO t VALUES (1,1,1,NULL), (1,2,1,NULL), (1,3,1,NULL), (1,4,0,ARRAY(1)), (2,1,1,NULL), (3,1,1,NULL);"
        "UPDATE t SET v = CAST('NaN' AS DOUBLE) WHERE k = 4; CALL sys.create_tag('t', 'a');"
        "DELETE FROM t WHERE p = 1 AND k = 1; UPDATE t SET v = 2 WHERE p = 1 AND k = 2;"
        "INSERT INTO t VALUES (1,6,1,NULL), (1,7,1,NULL); UPDATE t SET v = 9; DELETE FROM t WHERE k = 7;"
        "UPDATE t SET v = 1 WHERE k IN (1, 3, 6); UPDATE t SET v = 2 WHERE k = 2; ALTER TABLE t DROP PARTITION (p = 3);"
        "UPDATE t SET v = CAST('NaN' AS DOUBLE) WHERE k = 4; CALL sys.create_tag('t', 'b');"
        "CALL sys.compact('t'); UPDATE t SET l = ARRAY(2) WHERE k = 4; ALTER TABLE t RENAME COLUMN v TO w;"
        "ALTER TABLE t ADD COLUMN x INT; INSERT INTO t (p, k, w, x) VALUES (2, 1, 1, 5); CALL sys.create_tag('t', 'c')"
    )
    log = "SELECT * FROM paimon_incremental_query('t$audit_log', '{}', '{}')"
    assert sorted(run(log.format("a", "b"))) == [
        ("+I", 1, 6, 1.0, None),
        ("+U", 1, 2, 2.0, None),
        ("-D", 1, 1, 1.0, None),
        ("-D", 3, 1, 1.0, None),
    ]
    assert run("SELECT k, v FROM paimon_incremental_query('t', 'a', 'b') WHERE p = 1 ORDER BY k") == [(2, 2), (6, 1)]
    assert run("SELECT * FROM paimon_incremental_query('t', 'b', 'b')") == []
    later = run("SELECT p, k, l, x FROM t /*+ OPTIONS('incremental-between'='b,c') */ ORDER BY p, k")
    assert later == [(1, 4, [2], None), (2, 1, None, 5)]
    assert run("SELECT count(*), count(w) FROM t /*+ OPTIONS('incremental-between'='a,c') */") == [(4, 4)]


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
def test_merged_rows_are_compared_and_not_the_rows_that_were_written(run: Run, engine: str) -> None:
    run(
        "CREATE TABLE t (k INT, a INT, b INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket'='1', 'write-only'='true', "
        f"'merge-engine'='{engine}', 'fields.default-aggregate-function'='last_non_null_value');"
        "INSERT INTO t VALUES (1, 1, NULL), (2, 2, 2), (3, 3, NULL); INSERT INTO t VALUES (1, NULL, 1), (3, 4, NULL);"
        "CALL sys.create_tag('t', 'a'); INSERT INTO t VALUES (1, 1, 1), (2, NULL, NULL), (3, NULL, 9);"
        "INSERT INTO t VALUES (2, 7, NULL); CALL sys.create_tag('t', 'b')"
    )
    log = "SELECT * FROM paimon_incremental_query('t$audit_log', 'a', 'b')"
    assert run(log) == [("+U", 2, 7, 2), ("+U", 3, 4, 9)]


def test_tags_that_cannot_be_compared_are_refused(run: Run) -> None:
    run(
        "CREATE TABLE t (k INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket'='1'); CREATE TABLE u (k INT);"
        "INSERT INTO t VALUES (1), (2); INSERT INTO u VALUES (1); CALL sys.create_tag('t', 'a');"
        "CALL sys.create_tag('u', 'a'); INSERT INTO u VALUES (2); CALL sys.create_tag('u', 'b');"
        "CALL sys.rescale('t', 2); CALL sys.create_tag('t', 'b')"
    )
    with pytest.raises(UnsupportedTableError, match="had 1 bucket at the first tag and has 2 at the second"):
        run("SELECT * FROM paimon_incremental_query('t', 'a', 'b')")
    with pytest.raises(UnsupportedTableError, match=r"no primary key.*'incremental-between-tag-to-snapshot' = 'true'"):
        run("SELECT * FROM paimon_incremental_query('u', 'a', 'b')")
    tags = "'incremental-between'='a,b', 'incremental-between-tag-to-snapshot'='true'"
    assert run(f"SELECT * FROM u /*+ OPTIONS({tags}) */") == [2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (T.format("'incremental-between'='1'"), "give the start, which is not included, and the end"),
        (T.format("'incremental-between'='1,2,3'"), "give the start"),
        (
            T.format("'incremental-between'='1,x'"),
            "'1' and the end 'x' are neither two tags of the table nor two snapshot ids",
        ),
        (T.format("'incremental-between'='3,1'"), "the end, snapshot 1, is before the start, snapshot 3"),
        (T.format("'incremental-between'='1,9'"), "has no snapshot 9; it has snapshots 1 to 5"),
        (
            T.format("'incremental-between'='b,a'"),
            "the end, tag a of snapshot 1, is older than the start, tag b of snapshot",
        ),
        (T.format("'incremental-between'='a,b', 'incremental-between-scan-mode'='delta'"), "comparison of two tags"),
        (T.format("'incremental-between-timestamp'='2,1'"), "the end 1 is before the start 2"),
        (T.format("'incremental-between-timestamp'='soon,later'"), "'soon' is no time"),
        (T.format("'incremental-to-auto-tag'='2026-01-01'"), "'incremental-to-auto-tag' is not supported"),
        (T.format("'incremental-between'='1,2', 'scan.snapshot-id'='1'"), "both say which changes are read"),
        (T.format("'incremental-between'='1,2', 'incremental-between-scan-mode'='diff'"), "auto, delta, changelog"),
        (T.format("'incremental-between-scan-mode'='delta'"), "has no effect without 'incremental-between'"),
        (T.format("'incremental-between-tag-to-snapshot'='true'"), "has no effect without 'incremental-between'"),
        ("SELECT * FROM t$files /*+ OPTIONS('incremental-between'='1,2') */", "not supported for \\$files"),
        ("SELECT * FROM t$ro /*+ OPTIONS('incremental-between'='1,2') */", "read the table, or its \\$audit_log"),
        ("INSERT INTO t /*+ OPTIONS('incremental-between'='1,2') */ VALUES (1,1)", "no effect on writing t"),
        ("INSERT INTO t /*+ OPTIONS('sink.parallelism'='2') */ VALUES (1,1)", "no effect on writing t"),
        ("SELECT * FROM t /*+ OPTIONS('scan.parallelism'='2') */", "no effect on reading t"),
        ("SET spark.paimon.sink.parallelism = 3", "'sink.parallelism' has no effect here"),
    ],
)
def test_what_is_no_change_between_two_snapshots_is_refused(written: Run, text: str, message: str) -> None:
    written("CALL sys.create_tag('t', 'a', 1); CALL sys.create_tag('t', 'b', 2)")
    with pytest.raises(OptionError, match=message):
        written(text)
    assert written("SELECT count(*) FROM t") == [2]


def test_functions_of_paimon_read_the_changes_that_the_options_name(written: Run) -> None:
    assert written("SELECT x.k, v FROM paimon_incremental_query('t', '1', 5) x ORDER BY k, v") == [
        (2, 3),
        (3, 3),
        (3, 9),
    ]
    log = "SELECT * FROM paimon_incremental_query('paimon.default.`t$audit_log`', 3, 5)"
    assert sorted(written(log)) == [("+U", 3, 9), ("-D", 1, 1)]
    ever = "paimon_incremental_between_timestamp('default.t', '0', '2999-01-01 00:00:00')"
    assert written(f"SELECT k FROM {ever} WHERE v > 3 UNION ALL SELECT k FROM t VERSION AS OF 1") == [3, 1, 2]
    written("CREATE TABLE u AS SELECT k FROM Paimon_Incremental_Query('t', 0, 1)")
    assert written("SELECT k FROM u ORDER BY k") == [1, 2]
    with pytest.raises(OptionError, match="name the tag and the tag before it"):
        written("SELECT * FROM paimon_incremental_to_auto_tag('t', '2026-01-01')")
