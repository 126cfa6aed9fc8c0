"""A table that a REST catalog owns: commits, schema, tags, branches, rollback, lent keys; answers go astray."""

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.state.determinism import World
from bucketline.state.errors import CommitOutcomeUnknownError, CorruptFileError, SchemaMismatchError, StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.store.server.rest_table import RestTable
from bucketline.state.store.storage.rest_table_io import RestTableIO
from bucketline.state.store.table.table import handle_of
from tests.support.servers.rest_server import Fault, Request, RestServer, failing, lost, never_came
from tests.support.storage.watched_access import on_io

COLUMNS = "id BIGINT NOT NULL, v STRING"


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [f"v{i}" for i in ids]})


def ids(table: bl.Table) -> list[int]:
    found: list[int] = table.to_arrow()["id"].to_pylist()
    return sorted(found)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestServer]:
    with RestServer(tmp_path) as found:
        yield found


@pytest.fixture
def table(server: RestServer) -> bl.Table:
    options = {
        "bucket": "1",
        "commit.max-retries": "3",
        "commit.min-retry-wait": "1 ms",
        "commit.max-retry-wait": "2 ms",
    }
    return bl.catalog(server.options).create_table("t", COLUMNS, ["id"], options={**options, "write-only": "true"})


def test_a_commit_is_one_request_and_the_catalog_says_what_is_newest(server: RestServer, table: bl.Table) -> None:
    assert table.write(rows(1)) == 1
    server.requests.clear()
    assert table.write(rows(2)) == 2
    asked = [(r.method, r.path.rsplit("/", 1)[-1]) for r in server.requests]
    assert asked == [("GET", "snapshot"), ("POST", "commit")]
    commit = next(r.body for r in server.requests if r.method == "POST")
    assert commit["snapshot"]["id"] == 2 and commit["tableId"] == server.databases["default"]["t"].uuid
    Path(table.path, "snapshot/LATEST").write_text("1")
    assert ids(table) == [1, 2]
    # A file that the catalog does not know of is no snapshot of the table.
    newest = Path(table.path, "snapshot/snapshot-2")
    Path(table.path, "snapshot/snapshot-3").write_text(newest.read_text().replace('"id": 2', '"id": 3'))
    assert table.write(rows(3)) == 3 and ids(table) == [1, 2, 3]


@pytest.mark.parametrize("drops", [(), ("uuid", "operation")], ids=["new-server", "old-server"])
@pytest.mark.parametrize(
    "faults",
    [
        [lost],
        [never_came],
        [failing(500)],
        [failing(500, after=True)],
        [failing(503), failing(503)],
        [failing(504, after=True), failing(429)],
        [never_came, lost],
        [lost, never_came, never_came],
        [failing(409)],
    ],
)
def test_rows_are_there_once_whatever_becomes_of_the_answers(
    server: RestServer, table: bl.Table, faults: list[Fault], drops: tuple[str, ...]
) -> None:
    server.drops = drops
    table.write(rows(1))
    server.faults.extend(faults)
    assert table.write(rows(2)) == 2
    assert ids(table) == [1, 2] and table.snapshots()["snapshot_id"].to_pylist() == [1, 2]
    assert table.doctor(rows=True) == []


def test_an_attempt_that_arrives_after_its_time_changes_nothing(server: RestServer, table: bl.Table) -> None:
    table.write(rows(1))
    may_arrive, late = Event(), list[object]()

    def slow(request: object, do: Callable[[], object]) -> object:
        may_arrive.wait(60)
        late.append(do())
        return late[-1]

    io = handle_of(table).io
    assert isinstance(io, RestTableIO)
    client = replace(io.table.client, timeout_s=0.3)
    hasty = on_io(table, replace(io, table=replace(io.table, client=client)))
    server.faults.append(slow)
    assert hasty.write(rows(2)) == 2
    may_arrive.set()
    while not late:
        assert ids(table) == [1, 2]
    assert late == [{"success": False}]
    assert ids(table) == [1, 2] and table.snapshots().num_rows == 2


def test_the_first_commit_too_is_found_by_its_uuid(server: RestServer, table: bl.Table) -> None:
    server.faults.append(lost)
    assert table.write(rows(1)) == 1 and ids(table) == [1]


def test_an_outcome_that_stays_unclear_is_an_error_that_deletes_nothing(server: RestServer, table: bl.Table) -> None:
    table.write(rows(1))
    server.faults.extend([never_came] * 4)
    with pytest.raises(CommitOutcomeUnknownError):
        table.write(rows(2))
    server.faults.clear()
    assert ids(table) == [1]
    manifests = len(list(Path(table.path, "manifest").iterdir()))
    assert manifests > 3  # those of the commit that may still happen are there


def test_a_commit_that_the_server_refuses_leaves_no_manifest_behind(server: RestServer, table: bl.Table) -> None:
    table.write(rows(1))
    before = sorted(Path(table.path, "manifest").iterdir())
    server.faults.append(failing(403))
    with pytest.raises(StorageError, match="403 as told; check the option 'token'"):
        table.write(rows(2))
    assert sorted(Path(table.path, "manifest").iterdir()) == before


def test_a_commit_between_a_lost_answer_and_the_look_is_told_apart(server: RestServer, table: bl.Table) -> None:
    table.write(rows(1))
    other = pickle.loads(pickle.dumps(table))

    def overtaken(request: object, do: Callable[[], object]) -> object:
        do()
        other.write(rows(9))
        raise ConnectionResetError

    server.faults.extend([overtaken])
    assert table.write(rows(2)) == 3 or table.snapshots().num_rows == 3
    assert ids(table) == [1, 2, 9]

    def beaten(request: object, do: Callable[[], object]) -> object:
        other.write(rows(10))
        raise ConnectionResetError

    server.faults.extend([beaten])
    table.write(rows(3))
    assert ids(table) == [1, 2, 3, 9, 10] and table.snapshots().num_rows == 5


@pytest.mark.parametrize("drops", [(), ("uuid", "operation")], ids=["new-server", "old-server"])
def test_writers_at_the_same_time_lose_nothing(server: RestServer, table: bl.Table, drops: tuple[str, ...]) -> None:
    server.drops = drops
    many = table.set_options({"commit.max-retries": "1000"})

    def write(worker: int) -> None:
        for n in range(8):
            many.write(rows(worker * 100 + n))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert ids(table) == sorted(w * 100 + n for w in range(4) for n in range(8))
    assert table.snapshots()["snapshot_id"].to_pylist() == list(range(1, 33))


def test_the_server_changes_the_schema(server: RestServer, table: bl.Table) -> None:
    table.write(rows(1))
    found = table.add_column("n", "INT", comment="how many", position="first").add_column(
        "a", "ROW<x INT, y ROW<z STRING>>"
    )
    found = found.rename_column("v", "text").alter_column("n", type="BIGINT", comment="how many of them")
    found = (
        found.alter_column(("a", "x"), type="BIGINT").add_column(("a", "y", "w"), "INT").drop_column(("a", "y", "z"))
    )
    found = found.alter_column("text", position="first").alter_column("n", position="after id")
    found = found.set_options({"alter-column-null-to-not-null.disabled": "false"}).alter_column("n", nullable=False)
    found = found.set_options({"snapshot.num-retained.max": "20"}).unset_options("commit.max-retries")
    found = found.alter(bl.SetTableComment("orders"))
    expected = ["text", "id", "n", "a"]
    assert found.schema.names == expected == bl.open_table(table.path).schema.names
    assert str(found.schema.field("a").type) == "struct<x: int64, y: struct<w: int32>>"
    assert (found.comment, found.options["snapshot.num-retained.max"]) == ("orders", "20")
    assert "commit.max-retries" not in found.options and not found.schema.field("n").nullable
    assert found.drop_column("a").drop_column("n").to_arrow().to_pylist() == [{"text": "v1", "id": 1}]
    schemas = len(list(Path(table.path, "schema").iterdir()))
    assert schemas == sum(r.method == "POST" and r.path.endswith("/t") for r in server.requests) + 1


@pytest.mark.parametrize("fault", [lost, failing(500, after=True)])
def test_a_schema_change_whose_answer_is_lost_is_found(server: RestServer, table: bl.Table, fault: Fault) -> None:
    server.faults.append(fault)
    assert table.add_column("x", "INT").schema.names == ["id", "v", "x"]
    server.faults.append(never_came)
    with pytest.raises(StorageError):
        table.add_column("y", "INT")
    assert table.refreshed().schema.names == ["id", "v", "x"]


def test_what_the_server_refuses_and_what_another_has_done_meanwhile(server: RestServer, table: bl.Table) -> None:
    server.faults.append(failing(409))
    with pytest.raises(OptionError, match="the catalog refuses the change"):
        table.add_column("x", "INT")

    def meanwhile(request: object, do: Callable[[], object]) -> object:
        server.faults.append(None)
        table.add_column("x", "INT")
        return do()

    server.faults.append(meanwhile)
    assert table.add_column("x", "INT").schema.names == ["id", "v", "x"]


@pytest.fixture
def late(server: RestServer, table: bl.Table) -> bl.Table:
    """A table whose schema a fast-forward takes away right before its next write asks for the newest snapshot."""
    table.write(rows(1))
    table.create_tag("one")
    table.create_branch("b", "one")
    table.add_column("more", "INT")
    due = ["b"]

    class Asked(RestTable):
        def newest(self) -> Snapshot | None:
            if due:
                bl.catalog(server.options).table("t").fast_forward(due.pop())
            return super().newest()

    late = bl.catalog(server.options).table("t")
    io = handle_of(late).io
    assert isinstance(io, RestTableIO) and isinstance(io.table, RestTable)
    return on_io(late, replace(io, table=Asked(io.table.client, io.table.name, io.table.uuid)))


def more(n: int) -> pa.Table:
    return rows(n).append_column("more", pa.array([n], pa.int32()))


def test_a_commit_under_a_schema_that_a_fast_forward_took_away_is_taken_back(
    server: RestServer, late: bl.Table
) -> None:
    """Seed 1382 of the simulation: the table could not be read any more."""
    with pytest.raises(SchemaMismatchError, match=r"schema 1, .* was removed meanwhile.* nothing was committed"):
        late.write(more(2))
    now = bl.catalog(server.options).table("t")
    assert ids(now) == [1] and now.write(rows(3)) and ids(now) == [1, 3] and now.doctor(rows=True) == []


def test_a_commit_under_such_a_schema_says_so_if_another_builds_on_it(server: RestServer, late: bl.Table) -> None:
    def followed(request: Request, do: Callable[[], object]) -> object:
        answer = do()
        bl.catalog(server.options).table("t").write(rows(3))
        return answer

    server.faults += [None, followed]
    with pytest.raises(CorruptFileError, match=r"already builds on it; roll the table back to snapshot 2"):
        late.write(more(2))


def test_tags_branches_and_rollback_go_through_the_catalog(server: RestServer, table: bl.Table) -> None:
    for n in (1, 2, 3):
        table.write(rows(n))
    table.create_tag("two", 2, timedelta(days=1))
    assert server.requests[-1].body == {"tagName": "two", "snapshotId": 2, "timeRetained": "86400000 ms"}
    with pytest.raises(OptionError, match="Tag 'two' already exists"):
        table.create_tag("two")
    table.create_branch("b", "two")
    assert server.requests[-1].body == {"branch": "b", "fromTag": "two"}
    branch = bl.catalog(server.options).table("t$branch_b")
    assert ids(branch) == [1, 2] and table.branches() == ["b"]
    assert table.fast_forward("b") == 2 and ids(table) == [1, 2]
    assert server.count("/branches/b/forward") == 1
    assert table.rollback_to("two") == 2 and ids(table) == [1, 2]
    table.write(rows(4))
    assert table.rollback_to(1) == 1 and ids(table) == [1]
    assert table.write(rows(5)) == 2 and ids(table) == [1, 5]
    with pytest.raises(OptionError, match="Rollback snapshot '9' doesn't exist"):
        table.rollback_to(9)
    assert table.delete_branch("b") and table.branches() == []
    table.create_tag("unknown")
    server.unknown_tags = ("unknown",)
    assert table.delete_tag("unknown") and table.tags().num_rows == 0
    table.create_tag("new")
    assert table.delete_tag("new") and not table.delete_tag("new")
    assert [r.path.rsplit("/", 1)[-1] for r in server.requests if r.method == "DELETE"] == [
        "b",
        "unknown",
        "new",
    ]


def test_snapshots_expire_and_the_newest_never_does(server: RestServer, table: bl.Table) -> None:
    for n in range(5):
        table.write(rows(n))
    done = table.expire_snapshots(retain_min=1, retain_max=1, older_than=timedelta(0))
    assert done.snapshots == 4 and table.snapshots()["snapshot_id"].to_pylist() == [5]
    assert ids(table) == list(range(5)) and table.write(rows(7)) == 6
    assert table.compact() == 7 and ids(table) == [0, 1, 2, 3, 4, 7] and table.doctor(rows=True) == []


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ms = 1_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def local_ms(self) -> int:
        return self.ms


@pytest.mark.parametrize(("life_ms", "used_ms"), [(36_000_000, 32_400_000), (60_000, 30_000)])
def test_lent_keys_are_asked_for_once_and_again_before_they_end(tmp_path: Path, life_ms: int, used_ms: int) -> None:
    clock = Clock()

    def lend(name: str) -> dict[str, object]:
        token = {"s3.access-key": "lent-id", "s3.secret-key": "lent-key", "akId": "of another kind"}
        return {"token": token, "expiresAtMillis": clock.ms + life_ms}

    with RestServer(tmp_path, defaults={"data-token.enabled": "true"}, token=lend) as server:
        table = bl.catalog(server.options).create_table("t", COLUMNS, ["id"], options={"bucket": "1"})
        reached = handle_of(table).io
        assert isinstance(reached, RestTableIO)
        io = replace(reached, world=World(clock), table=replace(reached.table, uuid=f"another-{life_ms}"))
        server.requests.clear()
        for _ in range(3):
            assert io.list_names(table.path) == ["schema"]
            assert pickle.loads(pickle.dumps(io)).exists(f"{table.path}/schema")
        assert server.count("/token") == 1
        clock.ms += used_ms - 1
        io.list_names(table.path)
        assert server.count("/token") == 1
        clock.ms += 1
        io.list_names(table.path)
        assert server.count("/token") == 2
        assert io._lent().options["s3.secret-key"] == "lent-key" and "akId" not in io._lent().options
        assert "lent-key" not in repr(io)
