"""Schema changes against storage: one version each, whoever else changes the table, whatever fails."""

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.table.choices import EvolutionPolicy
from bucketline.state.commit.schema_change import AddColumn, RenameColumn, SetOption
from bucketline.state.errors import SchemaMismatchError, StorageError
from bucketline.state.store.catalog.alter import (
    alter_table,
    column_changes,
    column_path,
    column_type,
    evolve_table,
    position_of,
)
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.table_handle import TableHandle, newest_schema
from bucketline.state.types.logical import parse_type_text
from tests.support.commit_table import CommitTable, StillClock
from tests.support.faulty_io import Fault, FaultyIO
from tests.support.memory_io import MemoryIO

INT = parse_type_text("INT")


def _handle(io: MemoryIO | FaultyIO) -> TableHandle:
    table = CommitTable()
    if Schemas(io, table.path).latest_id() is None:
        Schemas(io, table.path).create(table.schema)
    return TableHandle(io, table.path, newest_schema(io, table.path))


def _names(table: TableHandle) -> list[str]:
    return [f.name for f in table.refreshed().table_schema.fields]


def test_each_change_is_a_version_and_old_ones_stay() -> None:
    table = _handle(MemoryIO())
    altered = alter_table(table, [AddColumn(("a",), INT)], clock=StillClock(7))
    altered = alter_table(altered, [RenameColumn(("a",), "b"), SetOption("num-levels", "4")])
    assert altered.table_schema == altered.refreshed().table_schema
    assert (altered.table_schema.id, _names(altered), altered.options["num-levels"]) == (2, ["k", "b"], "4")
    assert [f.name for f in Schemas(table.io, table.path).get(1).fields] == ["k", "a"]
    assert Schemas(table.io, table.path).get(1).time_ms == 7
    assert alter_table(altered, [AddColumn(("b",), INT)]).table_schema.id == 2


@pytest.mark.parametrize("other", ["a", "b"])
def test_a_lost_race_is_decided_again_on_the_winners_schema(other: str) -> None:
    storage = MemoryIO()
    _handle(storage)
    io = FaultyIO(storage)

    def interfere(name: str, path: str) -> None:
        if name == "publish":
            io.before_call = None
            alter_table(_handle(storage), [AddColumn((other,), INT)])

    io.before_call = interfere
    altered = alter_table(_handle(io), [AddColumn(("a",), INT)])
    assert _names(altered) == (["k", "a"] if other == "a" else ["k", "b", "a"])
    assert altered.table_schema.id == (1 if other == "a" else 2)
    ids = [f.id for f in altered.table_schema.fields]
    assert ids == list(range(len(ids)))


@pytest.mark.parametrize("fault", [Fault.BEFORE, Fault.AFTER])
def test_a_failed_publication_that_happened_is_a_success(fault: Fault) -> None:
    io = FaultyIO(MemoryIO())
    table = _handle(io)

    def strike(name: str, path: str) -> None:
        if name == "publish":
            io.faults[len(io.calls) + 1] = fault

    io.before_call = strike
    if fault is Fault.AFTER:
        assert _names(alter_table(table, [AddColumn(("a",), INT)])) == ["k", "a"]
    else:
        with pytest.raises(StorageError):
            alter_table(table, [AddColumn(("a",), INT)])
        assert _names(table) == ["k"]


def test_evolving_gives_new_columns_a_place_once() -> None:
    table = _handle(MemoryIO())
    incoming = pa.schema({"k": pa.int32(), "n": pa.string()})
    evolved = evolve_table(table, incoming, EvolutionPolicy.EVOLVE)
    assert _names(evolved) == ["k", "n"]
    assert evolve_table(table, incoming, EvolutionPolicy.EVOLVE).table_schema == evolved.table_schema
    assert evolve_table(table, pa.schema({"o": pa.int8()}), EvolutionPolicy.IGNORE).table_schema.id == 1
    with pytest.raises(SchemaMismatchError):
        evolve_table(table, pa.schema({"o": pa.int8()}), EvolutionPolicy.FAIL)


def test_types_positions_and_paths_are_read_from_text() -> None:
    assert column_type("decimal(9, 2)") == parse_type_text("DECIMAL(9, 2)")
    assert column_type(pa.int32()) == column_type(INT) == INT
    assert column_path("a.b") == ("a.b",)
    assert column_path(["a", "b"]) == ("a", "b")
    assert column_changes(("a",)) == []
    assert len(column_changes(("a",), data_type=INT, nullable=True, comment="", position="after x y")) == 4
    for text in ("last", "after ", "before x"):
        with pytest.raises(OptionError):
            position_of(text)
    with pytest.raises(OptionError):
        column_path([])
