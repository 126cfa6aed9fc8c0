"""Schema changes against storage: one version each, whoever else changes the table, whatever fails."""

from dataclasses import replace

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.table.choices import EvolutionPolicy
from bucketline.state.commit.schema_change import (
    AddColumn,
    DropColumn,
    RenameColumn,
    SchemaChange,
    SetOption,
    UnsetOption,
)
from bucketline.state.determinism import World
from bucketline.state.errors import SchemaMismatchError, StorageError, UnsupportedTableError
from bucketline.state.store.catalog.alter import (
    alter_table,
    column_changes,
    column_path,
    column_type,
    evolve_table,
    position_of,
)
from bucketline.state.store.catalog.new_schema import plan_schema, publish_first_schema
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.table_handle import TableHandle, newest_schema
from bucketline.state.types.columns_text import parse_columns
from bucketline.state.types.logical import parse_type_text
from tests.support.storage.faulty_io import Fault, FaultyIO
from tests.support.storage.memory_io import MemoryIO
from tests.support.tables.commit_table import CommitTable, StillClock

INT = parse_type_text("INT")


def _handle(io: MemoryIO | FaultyIO) -> TableHandle:
    table = CommitTable()
    if Schemas(io, table.path).latest_id() is None:
        Schemas(io, table.path).create(table.schema)
    return TableHandle(io, table.path, newest_schema(io, table.path))


def _names(table: TableHandle) -> list[str]:
    return [f.name for f in table.refreshed().table_schema.fields]


def test_each_change_is_a_version_and_old_ones_stay() -> None:
    table = replace(_handle(MemoryIO()), world=World(StillClock(7)))
    altered = alter_table(table, [AddColumn(("a",), INT)])
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


AGGREGATION = {"bucket": "1", "merge-engine": "aggregation"}
PARTIAL_UPDATE = {"bucket": "1", "merge-engine": "partial-update"}
GROUP = {**PARTIAL_UPDATE, "fields.a.sequence-group": "b,c"}
NESTED = {**AGGREGATION, "fields.r.aggregate-function": "nested_update", "fields.r.nested-key": "x"}
(MULTISET,) = [f.type for f in parse_columns("c MULTISET<INT>")]


def _table(options: dict[str, str]) -> TableHandle:
    io, path = MemoryIO(), CommitTable().path
    columns = "k INT NOT NULL, a BIGINT, b BIGINT, c STRING, r ARRAY<ROW<x INT, y STRING>>, t TIMESTAMP(3)"
    assert publish_first_schema(io, path, plan_schema(columns, ["k"], (), options, time_ms=1))
    return TableHandle(io, path, newest_schema(io, path))


@pytest.mark.parametrize(
    ("options", "change", "named"),
    [
        ({**AGGREGATION, "fields.a.aggregate-function": "sum"}, DropColumn(("a",)), "Field a can not be found"),
        (GROUP, DropColumn(("a",)), "Field a can not be found"),
        (GROUP, DropColumn(("b",)), "Field b can not be found"),
        ({"bucket": "1", "fields.c.stats-mode": "full"}, DropColumn(("c",)), "Field c can not be found"),
        (PARTIAL_UPDATE, SetOption("fields.z.sequence-group", "b"), "Field z can not be found"),
        (PARTIAL_UPDATE, SetOption("fields.a.sequence-group", "z"), "Field z can not be found"),
        (AGGREGATION, SetOption("fields.a.aggregate-function", "nonesuch"), "nonesuch"),
        (AGGREGATION, SetOption("fields.c.aggregate-function", "sum"), "column c"),
        (NESTED, DropColumn(("r", "element", "x")), "nested-key"),
        ({"bucket": "1", "file.format": "avro"}, AddColumn(("n",), parse_type_text("TIMESTAMP(9)")), "column n"),
        ({"bucket": "1"}, AddColumn(("n",), parse_type_text("TIMESTAMP(9)")), "column 'n'"),
        ({"bucket": "1", "file.format": "avro"}, AddColumn(("n",), MULTISET), "column n"),
    ],
    ids=str,
)
def test_a_schema_that_paimon_would_not_open_or_nobody_could_write_is_refused(
    options: dict[str, str], change: SchemaChange, named: str
) -> None:
    table = _table(options)
    with pytest.raises((OptionError, UnsupportedTableError), match=named):
        alter_table(table, [change])
    assert newest_schema(table.io, table.path).id == 0


def test_a_column_and_the_option_that_names_it_go_together() -> None:
    table = _table({**AGGREGATION, "fields.a.aggregate-function": "sum"})
    found = alter_table(table, [UnsetOption("fields.a.aggregate-function"), DropColumn(("a",))])
    assert "a" not in _names(found) and "fields.a.aggregate-function" not in found.options


def test_a_column_of_the_input_that_the_merge_engine_cannot_take_is_refused_before_the_table_changes() -> None:
    table = _table({**AGGREGATION})
    incoming = pa.schema({"k": pa.int32(), "n": pa.timestamp("ns")})
    with pytest.raises(UnsupportedTableError, match="column 'n'"):
        evolve_table(table, incoming, EvolutionPolicy.EVOLVE)
    assert newest_schema(table.io, table.path).id == 0


def test_a_schema_that_was_refused_today_can_still_be_mended() -> None:
    """Earlier releases, and others, let a column go that an option names."""
    table = _table({**AGGREGATION, "fields.a.aggregate-function": "sum"})
    first = newest_schema(table.io, table.path)
    fields = tuple(f for f in first.fields if f.name != "a")
    Schemas(table.io, table.path).create(replace(first, id=1, fields=fields))
    found = alter_table(table.refreshed(), [AddColumn(("n",), INT)])
    assert _names(found)[-1] == "n"
    assert alter_table(found, [UnsetOption("fields.a.aggregate-function")]).table_schema.id == 3


@pytest.mark.parametrize("order", ["abc", "acb", "cba"])
def test_old_problems_are_mended_one_by_one_in_any_order(order: str) -> None:
    table = _table(AGGREGATION | {f"fields.{name}.aggregate-function": "last_value" for name in "abc"})
    first = newest_schema(table.io, table.path)
    fields = tuple(f for f in first.fields if f.name not in "abc")
    Schemas(table.io, table.path).create(replace(first, id=1, fields=fields))
    found = table.refreshed()
    with pytest.raises(UnsupportedTableError, match="column 'n'"):
        alter_table(found, [AddColumn(("n",), parse_type_text("TIMESTAMP(9)"))])
    for name in order:
        found = alter_table(found, [UnsetOption(f"fields.{name}.aggregate-function")])
    assert found.table_schema.id == 4
