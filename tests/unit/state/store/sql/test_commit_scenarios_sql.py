"""Stories about commits and compactions as SQL text: which snapshots there are, and which files each of them has."""

import json
import random
import signal
import threading
from pathlib import Path

import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from tests.support.pages.sql_text import Run, snapshots
from tests.support.processes.sql_process import start_stopping

FILES = "SELECT level, file_source, record_count FROM `T$files` {} ORDER BY level, min_sequence_number"


def test_two_clients_that_commit_at_once_both_have_their_snapshot(run: Run) -> None:
    run("CREATE TABLE T (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket'='1', 'write-only'='true')")
    both = threading.Barrier(2)

    def client(number: int) -> None:
        for i in range(3):
            both.wait(60)
            run(f"INSERT INTO T VALUES ({2 * i + number}, {number})")

    clients = [threading.Thread(target=client, args=(number,)) for number in (0, 1)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    assert snapshots(run, "T") == [("APPEND", n, 1) for n in range(1, 7)]
    assert run("SELECT k FROM T ORDER BY k") == list(range(6))
    names: set[str] = set()
    for n in range(1, 7):  # each snapshot has the files of the one before, and one more
        found = set(run(f"SELECT file_path FROM `T$files` /*+ OPTIONS('scan.snapshot-id'='{n}') */"))
        assert names < found and len(found) == n
        names = found
    manifests = run("SELECT base_manifest_list, delta_manifest_list FROM `T$snapshots`")
    assert len({name for pair in manifests for name in pair}) == 12


def test_an_application_that_plans_and_compacts_every_few_commits_itself(run: Run) -> None:
    run("CREATE TABLE T (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket'='1', 'write-only'='true')")
    compaction = "CALL sys.plan_compaction(table => 'T', compact_strategy => 'full'); CALL sys.run_compactor('T')"
    for n in range(0, 6, 3):
        run(";".join(f"INSERT INTO T VALUES ({i % 2}, {i})" for i in range(n, n + 3)))
        ((item, bucket, state, snapshot, reason),) = run(compaction)
        assert (item, bucket, state, reason) == (0, "bucket-0", "done", None) and snapshot == n // 3 * 4 + 4
        assert run(FILES.format("")) == [(5, "COMPACT", 2)]
    assert [kind for kind, _, _ in snapshots(run, "T")] == [*["APPEND"] * 3, "COMPACT"] * 2
    assert run("SELECT * FROM T ORDER BY k") == [(0, 4), (1, 5)]


def test_batches_that_come_while_a_compaction_is_planned_are_merged_before_and_after_it(run: Run) -> None:
    run(
        "CREATE TABLE T (k INT, v INT, pt STRING) PARTITIONED BY (pt) TBLPROPERTIES ("
        "'primary-key'='k,pt', 'bucket'='1', 'write-only'='true');"
        "INSERT INTO T VALUES (1,1,'a'), (2,1,'a'), (3,1,'b'); CALL sys.compact(`table` => 'T');"
        "INSERT INTO T VALUES (1,2,'a'), (3,2,'b'); INSERT INTO T VALUES (2,3,'a')"
    )
    plan = "CALL sys.plan_compaction('default.T', 'full', 'pt=a')"
    looked = run(
        "CALL sys.plan_compaction(table => 'T', where => \"pt = 'a'\", compact_strategy => 'full', dry_run => true)"
    )
    ((number, item, bucket, files, levels, level, size, executors),) = run(plan)
    assert (number, item, bucket, files, levels, level, executors) == (1, 0, "pt=a/bucket-0", 3, "0,5", 5, 1)
    assert looked == [(None, item, bucket, files, levels, level, size, executors)]
    assert run("CALL sys.plan_compaction(table => 'T', compact_strategy => 'full', partitions => 'pt=a')") == []
    other = run("CALL sys.plan_compaction(table => 'T', compact_strategy => 'full')")
    assert [(p[0], p[2]) for p in other] == [(2, "pt=b/bucket-0")]  # two plans of different buckets side by side
    run("INSERT INTO T VALUES (1,6,'a'), (3,6,'b'); DELETE FROM T WHERE k = 2")
    rows, of_last_level = "SELECT k, v FROM T ORDER BY k", "SELECT k, v FROM `T$ro` ORDER BY k"
    assert run(rows) == [(1, 6), (3, 6)] and run(of_last_level) == [(1, 1), (2, 1), (3, 1)]
    before = len(snapshots(run, "T"))
    done = run("CALL sys.run_compactor('T')")
    assert sorted(d[1:3] for d in done) == [("pt=a/bucket-0", "done"), ("pt=b/bucket-0", "done")]
    assert run(rows) == [(1, 6), (3, 6)] and run(of_last_level) == [(1, 2), (2, 3), (3, 2)]
    kinds = [kind for kind, _, _ in snapshots(run, "T")[before:]]
    assert kinds == ["COMPACT", "COMPACT"] and run("CALL sys.run_compactor('T')") == []
    # What came after the plans has stayed on level 0.
    assert run("SELECT partition, level FROM `T$files` ORDER BY partition, level") == [
        ("{a}", 0), ("{a}", 0), ("{a}", 5), ("{b}", 0), ("{b}", 5),
    ]  # fmt: skip


def test_items_of_a_killed_compactor_are_done_by_another_and_a_late_one_commits_nothing(
    run: Run, tmp_path: Path
) -> None:
    run(
        "CREATE TABLE T (k INT, v INT, pt INT, PRIMARY KEY (k, pt) NOT ENFORCED) PARTITIONED BY (pt) WITH ("
        "'bucket'='1', 'write-only'='true')"
    )
    for v in (1, 2):
        run("INSERT INTO T VALUES " + ", ".join(f"(1, {v}, {pt})" for pt in range(12)))
    planned = run("CALL sys.plan_compaction(table => 'T', compact_strategy => 'full')")
    assert len(planned) == 12 and 1 <= planned[0][-1] <= 12
    work = "CALL sys.run_compactor(table => 'T', options => 'compactor.lease=1 s')"
    killed, late = start_stopping(str(tmp_path), work), start_stopping(str(tmp_path), work)
    try:
        killed.kill()
        done = run(work.replace(")", ", wait => '60 s')"))
        assert sorted(d[0] for d in done) == list(range(12)) and {d[2] for d in done} == {"done"}
        found = snapshots(run, "T")
        late.send_signal(signal.SIGCONT)
        told = json.loads(late.communicate(timeout=60)[0])
    finally:
        for process in (killed, late):
            process.kill()
            process.communicate()
    assert "done" not in {d["state"] for d in told if d["snapshot_id"] not in {d[3] for d in done}}
    assert snapshots(run, "T") == found and found[-1][1] == 12
    assert run("SELECT count(*), min(v) FROM T") == [(12, 2)]
    assert run("SELECT level, record_count FROM `T$files`") == [(5, 1)] * 12
    assert bl.catalog(str(tmp_path)).table("default.T").doctor() == []


@pytest.mark.parametrize("wrong", ["wait => 'soon'", "options => 'compactor.lease=1 ms'", "options => 'lease=1 s'"])
def test_wrong_arguments_of_a_compactor_are_refused(run: Run, wrong: str) -> None:
    run("CREATE TABLE T (k INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket'='1')")
    with pytest.raises(OptionError):
        run(f"CALL sys.run_compactor(table => 'T', {wrong})")
    with pytest.raises(OptionError, match="unknown compact_strategy 'fulll'; did you mean 'full'"):
        run("CALL sys.plan_compaction(table => 'T', compact_strategy => 'fulll')")


def test_each_insert_is_compacted_fully_where_the_table_says_so(run: Run) -> None:
    run(
        "CREATE TABLE T (pk INT, v INT) TBLPROPERTIES ('primary-key'='pk', 'bucket'='1', "
        "'full-compaction.delta-commits'='1')"
    )
    for n in (1, 2, 3):
        run(f"INSERT INTO T VALUES ({n}, {n})")
        assert run(FILES.format("")) == [(5, "APPEND" if n == 1 else "COMPACT", n)]
        assert snapshots(run, "T")[-2:] == [("APPEND", n, 1), ("COMPACT", n, 0)]
    assert len(snapshots(run, "T")) == 6


def test_an_insert_under_deletion_vectors_upgrades_its_file_and_an_update_marks_the_old_row(run: Run) -> None:
    run(
        "CREATE TABLE T (pk INT, v INT) TBLPROPERTIES ('primary-key'='pk', 'bucket'='1', "
        "'deletion-vectors.enabled'='true'); INSERT INTO T VALUES (1,10), (2,20), (3,30), (4,40)"
    )
    files = "SELECT file_path, level, file_source, min_sequence_number, max_sequence_number FROM `T$files` {}"
    ((upgraded, *after),) = run(files.format(""))
    ((written, *before),) = run(files.format("/*+ OPTIONS('scan.snapshot-id'='1') */"))
    assert upgraded == written and (before, after) == ([0, "APPEND", 0, 3], [5, "APPEND", 0, 3])
    assert run("SELECT * FROM `T$table_indexes`") == []
    assert snapshots(run, "T") == [("APPEND", 4, 4), ("COMPACT", 4, 0)]
    run("UPDATE T SET v = 11 WHERE pk = 1")
    assert run("SELECT * FROM T ORDER BY pk") == [(1, 11), (2, 20), (3, 30), (4, 40)]
    assert snapshots(run, "T")[2:] == [("APPEND", 5, 1), ("COMPACT", 5, 0)]
    assert run(FILES.format("")) == [(4, "APPEND", 1), (5, "APPEND", 4)]
    ((bucket, index, rows, ranges),) = run("SELECT bucket, index_type, row_count, dv_ranges FROM `T$table_indexes`")
    assert (bucket, index, rows, [r["_CARDINALITY"] for r in ranges]) == (0, "DELETION_VECTORS", 1, [1])
    commits = run("SELECT commit_user, commit_identifier FROM `T$snapshots` ORDER BY snapshot_id")
    assert {identifier for _, identifier in commits} == {9223372036854775807}
    users = [user for user, _ in commits]
    assert users[0] == users[1] != users[2] == users[3]


def test_postponed_rows_are_one_snapshot_and_no_compaction(run: Run) -> None:
    run(
        "CREATE TABLE T (pk INT, v INT) TBLPROPERTIES ('primary-key'='pk', 'bucket'='-2', "
        "'postpone.batch-write-fixed-bucket'='false'); INSERT INTO T VALUES (1,10), (2,20)"
    )
    assert snapshots(run, "T") == [("APPEND", 2, 2)] and run("SELECT bucket FROM `T$buckets`") == [-2]


def test_a_write_picks_what_is_due_and_an_explicit_full_compaction_everything(run: Run) -> None:
    run(
        "CREATE TABLE T (k INT, v INT, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket'='1', "
        "'num-sorted-run.compaction-trigger'='3');"
    )
    levels = []
    for n in range(7):
        keys = range(3000) if n == 2 else (n,)
        run("INSERT INTO T VALUES " + ", ".join(f"({k}, {n})" for k in keys))
        levels.append(run("SELECT level FROM `T$files` ORDER BY level"))
    # The third write is large: it becomes the last level with those before it. What comes later is merged beside it.
    assert levels == [[0], [0, 0], [3], [0, 3], [2, 3], [0, 2, 3], [2, 3]]
    assert [kind for kind, _, _ in snapshots(run, "T")].count("COMPACT") == 3
    run("INSERT INTO T VALUES (1, 7); CALL sys.compact(table => 'T', compact_strategy => 'minor')")
    assert run("SELECT level FROM `T$files` ORDER BY level") == [0, 2, 3]
    run("CALL sys.compact(table => 'T', compact_strategy => 'full')")
    assert run(FILES.format("")) == [(3, "COMPACT", 3000)]
    before = snapshots(run, "T")
    run("CALL sys.compact(table => 'T')")
    assert snapshots(run, "T") == before


@pytest.mark.parametrize("seed", [1])
def test_deletion_vectors_show_what_merging_shows_whatever_was_done(run: Run, seed: int) -> None:
    """Random statements on tables that differ in how readers get the newest rows, beside a dictionary."""
    draw, model = random.Random(seed), dict[int, int]()
    vectors = "'deletion-vectors.enabled'='true'"
    kinds = {"merged": "'write-only'='false'", "marked": vectors, "unmerged": f"{vectors}, 'write-only'='true'"}
    for name, options in kinds.items():
        run(f"CREATE TABLE {name} (k INT, v INT) TBLPROPERTIES ('primary-key'='k', 'bucket'='2', {options})")
    for step in range(14):
        low = draw.randrange(40)
        rows = {low + i: draw.randrange(100) for i in range(draw.randrange(1, 12))}
        values = ", ".join(f"({k}, {v})" for k, v in rows.items())
        match draw.choice(["insert", "insert", "update", "delete", "merge", "compact"]):
            case "insert":
                text = f"INSERT INTO {{}} VALUES {values}"
                model |= rows
            case "update":
                text = f"UPDATE {{}} SET v = v + 100 WHERE k BETWEEN {low} AND {low + 9}"
                model |= {k: v + 100 for k, v in model.items() if low <= k <= low + 9}
            case "delete":
                text = f"DELETE FROM {{}} WHERE k >= {low} AND k < {low + 5} OR v = {step}"
                model = {k: v for k, v in model.items() if not (low <= k < low + 5 or v == step)}
            case "merge":
                text = (
                    f"MERGE INTO {{0}} USING (SELECT * FROM VALUES {values} AS s(k, v)) s ON {{0}}.k = s.k "
                    "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)"
                )
                model |= rows
            case _:
                text = "CALL sys.compact(table => '{}', compact_strategy => '" + draw.choice(["minor", "full"]) + "')"
        for name in kinds:
            run(text.format(name))
            hint = "/*+ OPTIONS('deletion-vectors.merge-on-read'='true') */" if name == "unmerged" else ""
            found = run(f"SELECT k, v FROM {name} {hint} ORDER BY k")
            assert found == sorted(model.items()), (step, name, text)
