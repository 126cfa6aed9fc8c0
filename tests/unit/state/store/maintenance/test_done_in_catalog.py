"""Partitions are marked as done in the REST catalog that keeps them, by an event or by one partition more."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.state.store.maintenance.upkeep import Upkeep
from bucketline.state.store.table.maintenance import expire_table_partitions
from bucketline.state.store.table.write import write_table
from bucketline.state.store.write.table_at import table_at
from tests.support.servers.rest_server import RestServer, failing
from tests.support.tables.commit_table import StillClock
from tests.support.tables.worlds import handle_in

DAY_MS = 86_400_000
COLUMNS = "k INT NOT NULL, dt STRING, h INT"
KEPT = {"metastore.partitioned-table": "true"}
DONE = {"partition.idle-time-to-done": "1 h", "partition.time-interval": "1 d"}
BOTH = "success-file,mark-event,done-partition"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestServer]:
    with RestServer(tmp_path / "rest") as found:
        yield found


@pytest.fixture
def clock() -> StillClock:
    return StillClock(1_768_000_000_000)  # 2026-01-09T23:06:40Z


def _create(catalog: bl.Catalog, actions: str, **options: str) -> bl.Table:
    given = {"bucket": "1", "partition.mark-done-action": actions, **options}
    return catalog.create_table("t", COLUMNS, ["k", "dt", "h"], ["dt", "h"], options=given)


def _rows(*partitions: tuple[str, int]) -> pa.Table:
    days, hours = zip(*partitions, strict=True)
    fields = [("k", pa.int32()), ("dt", pa.string()), ("h", pa.int32())]
    return pa.table({"k": [1] * len(days), "dt": days, "h": hours}, schema=pa.schema(fields))


def test_partitions_are_marked_in_the_catalog_and_marked_again_until_it_answers(
    server: RestServer, clock: StillClock
) -> None:
    table = _create(bl.catalog(server.options), BOTH, **KEPT, **DONE)
    write_table(handle_in(table, clock=clock), _rows(("2026-01-08", 1), ("2026-01-09", 2)))
    clock.now += DAY_MS // 16
    session = table_at(handle_in(table, clock=clock), {}).refreshed()
    upkeep, owned = Upkeep(), server.databases["default"]["t"]
    marked = Path(table.path, "dt=2026-01-08/h=1/_SUCCESS")
    server.faults[:] = [failing(500)]
    assert upkeep.mark_done(session) == () and not marked.exists() and owned.done == []
    server.faults[:] = [None, failing(503)]
    assert upkeep.mark_done(session) == () and not marked.exists()
    assert upkeep.mark_done(session) == ("dt=2026-01-08/h=1",)
    assert marked.exists()
    assert owned.done == [{"dt": "2026-01-08", "h": "1"}] * 2
    assert owned.partitions == [{"dt": "2026-01-08", "h": "1.done"}]
    assert upkeep.mark_done(session) == ()
    clock.now += DAY_MS
    assert upkeep.mark_done(session) == ("dt=2026-01-09/h=2",)
    assert owned.partitions[1:] == [{"dt": "2026-01-09", "h": "2.done"}]


def test_a_batch_write_and_a_call_mark_without_a_file(server: RestServer, clock: StillClock) -> None:
    table = _create(bl.catalog(server.options), "mark-event", **KEPT, **{"partition.end-input-to-done": "true"})
    write_table(handle_in(table, clock=clock), _rows(("", 1), ("a b", 2)))
    owned = server.databases["default"]["t"]
    empty, spaced = {"dt": "__DEFAULT_PARTITION__", "h": "1"}, {"dt": "a b", "h": "2"}
    assert sorted(owned.done, key=str) == [empty, spaced]
    assert table.mark_done([{"dt": "a b"}]) == ("dt=a b/h=2",)
    assert owned.done[2:] == [spaced]
    assert list(Path(table.path).rglob("_SUCCESS")) == []


def test_the_done_partition_goes_with_the_partition_that_expires(server: RestServer, clock: StillClock) -> None:
    table = _create(bl.catalog(server.options), BOTH, **KEPT, **{"partition.expiration-time": "1 d"})
    write_table(handle_in(table, clock=clock), _rows(("2026-01-01", 1), ("2026-01-09", 2)))
    table.mark_done()
    owned = server.databases["default"]["t"]
    server.faults[:] = [None, failing(500)]
    assert expire_table_partitions(handle_in(table, clock=clock), older_than=None) == ("dt=2026-01-01/h=1",)
    assert len(owned.partitions) == 2
    write_table(handle_in(table, clock=clock), _rows(("2026-01-01", 1)))
    expire_table_partitions(handle_in(table, clock=clock), older_than=None)
    assert owned.partitions == [{"dt": "2026-01-09", "h": "2.done"}]
    assert table.to_arrow()["h"].to_pylist() == [2]


def test_a_catalog_that_keeps_no_partitions_is_an_error_that_says_what_to_set(server: RestServer) -> None:
    server.adds_partitions = False
    table = _create(bl.catalog(server.options), "done-partition", **KEPT)
    table.write(_rows(("a", 1)))
    with pytest.raises(bl.UnsupportedTableError, match=r"does not store partitions of default\.t: .*to 'success-file'"):
        table.mark_done()
    server.faults[:] = [failing(501)]
    with pytest.raises(bl.UnsupportedTableError, match="does not store partitions"):
        table.mark_done()
    server.databases["default"].clear()
    with pytest.raises(bl.TableNotFoundError):
        table.mark_done()


def test_a_report_names_the_table_as_its_catalog_does(server: RestServer) -> None:
    options = {"partition.mark-done-action.http.url": f"{server.uri}/done"}
    table = _create(bl.catalog(server.options), "http-report", **options)
    table.write(_rows(("a", 1)))
    with pytest.raises(bl.StorageError, match="the report of partition dt=a/h=1/ failed"):
        table.mark_done()
    assert (server.requests[-1].path, server.requests[-1].body["table"]) == ("/done", "default.t")


@pytest.mark.parametrize("action", ["mark-event", "done-partition"])
def test_what_marks_in_a_catalog_wants_a_table_whose_partitions_it_keeps(
    tmp_path: Path, server: RestServer, action: str
) -> None:
    with pytest.raises(OptionError, match=r"'metastore\.partitioned-table' must be 'true', which needs a REST"):
        _create(bl.catalog(server.options), f"success-file,{action}", **DONE)
    with pytest.raises(OptionError, match=f"set it to 'success-file,{action}'"):
        _create(bl.catalog(server.options), action, **KEPT, **DONE)
    folders = bl.catalog({"warehouse": str(tmp_path / "folders")})
    with pytest.raises(OptionError, match="was not opened through a REST catalog") as e:
        _create(folders, action, **KEPT)
    assert e.value.fields["key"] == "metastore.partitioned-table"
    assert folders.list_tables("default") == []
    table = _create(folders, action)
    table.write(_rows(("a", 1)))
    with pytest.raises(OptionError, match="must be 'true'"):
        table.mark_done()
    with pytest.raises(OptionError, match="was not opened through a REST catalog"):
        table.set_options(KEPT).write(_rows(("b", 1)))
    with pytest.raises(OptionError, match="was not opened through a REST catalog"):
        table.refreshed().mark_done()
    assert table.to_arrow().num_rows == 1
