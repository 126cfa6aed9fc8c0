"""Branches of a table that a REST catalog owns: written, compacted and read through the server; answers go astray."""

import pickle
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.state.errors import BranchNotFoundError, SchemaMismatchError, StorageError
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.servers.rest_server import Fault, Request, RestServer, failing, lost, never_came
from tests.support.spark.tasks import Cluster

COLUMNS = "id BIGINT NOT NULL, v STRING"
OPTIONS = {
    "bucket": "1",
    "commit.max-retries": "3",
    "commit.min-retry-wait": "1 ms",
    "commit.max-retry-wait": "2 ms",
}
LOST = [[lost], [failing(500, after=True)]]
"""Answers that are lost once the request has been carried out."""


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"v{i}" for i in ids]})


def ids(table: bl.Table) -> list[int]:
    found: list[int] = table.to_arrow()["id"].to_pylist()
    return sorted(found)


def no_orphans(table: bl.Table) -> bool:
    return table.doctor(rows=True) == [] and table.remove_orphan_files(older_than=timedelta(0)).files == ()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestServer]:
    with RestServer(tmp_path) as found:
        yield found


@pytest.fixture
def table(server: RestServer) -> bl.Table:
    found = bl.catalog(server.options).create_table("t", COLUMNS, ["id"], options={**OPTIONS, "write-only": "true"})
    found.write(rows(1))
    found.create_tag("start")
    found.create_branch("b", "start")
    return found


@pytest.fixture
def branch(server: RestServer, table: bl.Table) -> bl.Table:
    return bl.catalog(server.options).table("t$branch_b")


def test_a_branch_is_written_through_the_catalog_beside_its_table(
    server: RestServer, table: bl.Table, branch: bl.Table
) -> None:
    assert branch.write(rows(2)) == 2
    server.requests.clear()
    assert branch.write(rows(3)) == 3
    asked = [(r.method, *r.path.rsplit("/", 2)[-2:]) for r in server.requests]
    assert asked == [("GET", "t%24branch_b", "snapshot"), ("POST", "t%24branch_b", "commit")]
    assert server.requests[-1].body["tableId"] == server.databases["default"]["t"].branches["b"].uuid
    assert table.write(rows(4)) == 2
    assert branch.compact() == 4 and ids(pickle.loads(pickle.dumps(branch))) == [1, 2, 3]
    assert ids(table) == [1, 4] and no_orphans(table) and no_orphans(branch)
    Path(table.path, "branch/branch-b/snapshot/LATEST").write_text("1")
    assert ids(branch) == [1, 2, 3]


def test_schema_tags_rollback_and_expiry_of_a_branch_are_its_own(
    server: RestServer, table: bl.Table, branch: bl.Table
) -> None:
    wider = branch.add_column("n", "INT")
    assert (wider.schema.names, table.refreshed().schema.names) == (["id", "v", "n"], ["id", "v"])
    branch = wider.drop_column("n")
    for n in (2, 3, 4):
        branch.write(rows(n))
    branch.create_tag("two", 2)
    assert server.requests[-1].path.endswith("/t%24branch_b/tags")
    assert branch.tags()["tag_name"].to_pylist() == ["start", "two"]
    assert table.tags()["tag_name"].to_pylist() == ["start"]
    assert branch.rollback_to(3) == 3 and ids(branch) == [1, 2, 3]
    assert branch.rollback_to("two") == 2 and ids(branch) == [1, 2]
    assert branch.delete_tag("two") and branch.write(rows(5)) == 3
    table.write(rows(6))
    table.expire_snapshots(retain_min=1, retain_max=1, older_than=timedelta(0))
    branch.expire_snapshots(retain_min=1, retain_max=1, older_than=timedelta(0))
    assert branch.snapshots()["snapshot_id"].to_pylist() == [3]
    assert (ids(table), ids(branch)) == ([1, 6], [1, 2, 5]) and table.doctor(rows=True) == []
    assert table.remove_orphan_files(
        older_than=timedelta(0), dry_run=False, no_writers=True
    ).files  # what the rollbacks left
    assert no_orphans(table) and no_orphans(branch)
    assert table.delete_tag("start") and ids(branch) == [1, 2, 5]
    assert table.fast_forward("b") == 3 and ids(table) == [1, 2, 5] and table.refreshed().write(rows(7)) == 4


@pytest.mark.parametrize(("branch_widens", "became"), [(False, "removed"), (True, "replaced")])
def test_rows_under_a_schema_that_a_fast_forward_takes_away_meanwhile_are_refused(
    server: RestServer, table: bl.Table, branch: bl.Table, branch_widens: bool, became: str
) -> None:
    wider = table.add_column("n", "INT")
    wider.write(_wide("n", 2))
    if branch_widens:
        branch.add_column("m", "INT").write(_wide("m", 3))

    def forwarded(request: Request, do: Callable[[], Any]) -> Any:
        table.fast_forward("b")
        return do()

    server.faults.append(forwarded)
    with pytest.raises(SchemaMismatchError, match=f"schema 1, .* was {became} meanwhile.*nothing was committed"):
        wider.write(_wide("n", 4))
    table = table.refreshed()
    assert ids(table) == ([1, 3] if branch_widens else [1]) and table.doctor(rows=True) == []
    # The id after the branch's newest snapshot is that of the empty snapshot with which the fast-forward ends.
    assert table.write(_wide("m", 5) if branch_widens else rows(5)) == (4 if branch_widens else 3)


def _wide(name: str, number: int) -> pa.Table:
    return rows(number).append_column(name, pa.array([number], pa.int32()))


def test_an_empty_branch_begins_with_the_newest_schema(server: RestServer, table: bl.Table) -> None:
    table.create_branch("empty")
    found = bl.catalog(server.options).table("t$branch_empty")
    assert ids(found) == [] and found.write(rows(9)) == 1 and ids(found) == [9] and ids(table) == [1]
    assert table.branches() == table.system("branches")["branch_name"].to_pylist() == ["b", "empty"]


def test_the_catalog_says_which_branches_there_are(server: RestServer, table: bl.Table, branch: bl.Table) -> None:
    catalog = bl.catalog(server.options)
    assert catalog.has_table("t$branch_b") and not catalog.has_table("t$branch_x")
    with pytest.raises(OptionError, match="Branch name 'b' already exists"):
        table.create_branch("b")
    with pytest.raises(BranchNotFoundError):
        catalog.table("t$branch_x")
    with pytest.raises(OptionError, match="Branch name 'x' doesn't exist; there are: b"):
        table.fast_forward("x")
    assert branch.write(rows(2)) == 2 and table.delete_branch("b") and not table.delete_branch("b")
    with pytest.raises(BranchNotFoundError, match="has no branch 'b'; it has only 'main'"):
        branch.write(rows(3))
    table.create_branch("b", "start")
    assert catalog.table("t$branch_b").write(rows(3)) == 2


def test_a_branch_that_another_process_made_anew_has_another_id(
    server: RestServer, table: bl.Table, branch: bl.Table
) -> None:
    assert branch.write(rows(2)) == 2
    server.databases["default"]["t"].branches["b"].uuid = "another"
    server.faults.append(failing(404))
    with pytest.raises(BranchNotFoundError, match=r"the catalog has no branch 'b' of the table default\.t"):
        branch.write(rows(3))
    assert branch.write(rows(3)) == 3
    assert server.requests[-1].body["tableId"] == "another"


@pytest.mark.parametrize("drops", [(), ("uuid", "operation")], ids=["new-server", "old-server"])
@pytest.mark.parametrize(
    "faults", [*LOST, [never_came], [failing(503), lost], [lost, never_came, never_came], [failing(409)]]
)
def test_rows_are_in_a_branch_once_whatever_becomes_of_the_answers(
    server: RestServer, branch: bl.Table, faults: list[Fault], drops: tuple[str, ...]
) -> None:
    server.drops = drops
    server.faults.extend(faults)
    assert branch.write(rows(2)) == 2
    assert ids(branch) == [1, 2] and branch.snapshots()["snapshot_id"].to_pylist() == [1, 2]
    assert branch.doctor(rows=True) == []


CHANGES: list[tuple[str, Callable[[bl.Table], object], Callable[[bl.Table], bool]]] = [
    ("create a branch", lambda t: t.create_branch("c", "start"), lambda t: t.branches() == ["b", "c"]),
    ("delete a branch", lambda t: t.delete_branch("b"), lambda t: t.branches() == []),
    ("forward", lambda t: t.fast_forward("b"), lambda t: ids(t) == [1]),
    ("create a tag", lambda t: t.create_tag("x"), lambda t: t.tags().num_rows == 2),
    ("delete a tag", lambda t: t.delete_tag("start"), lambda t: t.tags().num_rows == 0),
    ("roll back", lambda t: t.rollback_to(1), lambda t: ids(t) == [1]),
    ("roll back to a tag", lambda t: t.rollback_to("start"), lambda t: ids(t) == [1]),
]


@pytest.mark.parametrize("faults", LOST)
@pytest.mark.parametrize(("change", "is_done"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_a_change_whose_answer_is_lost_is_found(
    server: RestServer,
    table: bl.Table,
    change: Callable[[bl.Table], object],
    is_done: Callable[[bl.Table], bool],
    faults: list[Fault],
) -> None:
    table.write(rows(2))
    server.faults.extend(faults)
    change(table)
    assert not server.faults and is_done(table)


@pytest.mark.parametrize(("change", "is_done"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_a_change_that_never_came_is_an_error(
    server: RestServer, table: bl.Table, change: Callable[[bl.Table], object], is_done: Callable[[bl.Table], bool]
) -> None:
    table.write(rows(2))
    server.faults.append(never_came)
    with pytest.raises(StorageError):
        change(table)
    assert not is_done(table)
    change(table)
    assert is_done(table)


def test_a_stream_writes_a_branch_and_a_repeated_batch_changes_nothing(server: RestServer, table: bl.Table) -> None:
    place = bl.catalog(server.options).place("t$branch_b")

    def write(number: int, *found: int) -> None:
        sink = TableSink(place.uri, {"branch": "b"}, storage_options=place.storage, decode=DecodedRows)
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
        sink.write(Cluster(random.Random(number), 2).frame(rows(*found), 2), identity)

    for number in range(4):
        server.faults.append(lost)
        write(number, number + 10, 20)
        forget_table(table.path, "query")
        write(number, 99)
    branch = bl.catalog(server.options).table("t$branch_b")
    assert ids(branch) == [1, 10, 11, 12, 13, 20] and ids(table) == [1]
    assert "bucketline-writer-query" in branch.tags()["tag_name"].to_pylist()
    assert branch.compact() is not None and ids(branch) == [1, 10, 11, 12, 13, 20]
    assert table.doctor(rows=True) == [] and branch.doctor(rows=True) == []


def test_files_of_a_branch_that_begins_at_a_snapshot_of_its_table_are_kept(server: RestServer, table: bl.Table) -> None:
    """Paimon's test server lets a branch without a tag begin so, and writes no snapshot file for it."""
    table.create_branch("c")
    owned = server.databases["default"]["t"]
    owned.branches["c"].newest = owned.newest
    begun = bl.catalog(server.options).table("t$branch_c")
    table.delete_branch("b")
    table.delete_tag("start")
    assert table.compact() is not None
    table.write(rows(1, 2))
    table.compact()
    table.expire_snapshots(retain_min=1, retain_max=1, older_than=timedelta(0))
    assert not Path(table.path, "snapshot/snapshot-1").exists()
    assert (
        ids(begun) == [1]
        and table.remove_orphan_files(older_than=timedelta(0), dry_run=False, no_writers=True).files == ()
    )
    assert ids(begun) == [1]
    assert begun.write(rows(7)) == 2 and ids(begun) == [1, 7] and ids(table) == [1, 2]
