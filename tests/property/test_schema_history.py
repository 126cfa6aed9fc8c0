"""Field ids of real histories of schemas fit each other; ids that a history cannot have are seen."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.commit.schema_change import (
    AddColumn,
    ChangeType,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    change_schema,
)
from bucketline.state.commit.schema_edit import ColumnPath, First
from bucketline.state.errors import CorruptFileError, SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema, decode_schema
from bucketline.state.format.schema_history import id_problems
from bucketline.state.store.doctor.finding import Severity
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.types.logical import DataField, DataType, TypeRoot, parse_type_text
from tests.support.peers.golden import GOLDEN
from tests.support.tables.examined import examine

INT, BIGINT = parse_type_text("INT"), parse_type_text("BIGINT")


def row(*fields: DataField) -> DataType:
    return DataType(TypeRoot.ROW, fields=fields)


INNER = row(DataField(0, "x", INT), DataField(0, "y", row(DataField(0, "z", INT))))
TYPES = [INT, INNER, DataType(TypeRoot.ARRAY, element=INNER), DataType(TypeRoot.MAP, key=INT.not_null(), value=INNER)]


def paths(data_type: DataType, path: ColumnPath) -> list[ColumnPath]:
    """The paths to all fields inside a type."""
    found = [p for f in data_type.fields for p in ((*path, f.name), *paths(f.type, (*path, f.name)))]
    for inner, part in ((data_type.element, "element"), (data_type.value, "value")):
        found += [] if inner is None else paths(inner, (*path, part))
    return found


def all_paths(schema: TableSchema) -> list[ColumnPath]:
    return [p for f in schema.fields for p in ((f.name,), *paths(f.type, (f.name,)))]


def changes(draw: np.random.Generator, schema: TableSchema, name: str) -> Sequence[SchemaChange]:
    known = all_paths(schema)
    path = known[int(draw.integers(len(known)))]
    column = f"{'abcdef'[int(draw.integers(6))]}"
    match int(draw.integers(6)):
        case 0:
            return [AddColumn((column,), TYPES[int(draw.integers(len(TYPES)))])]
        case 1:
            return [AddColumn((*path[:-1], name), TYPES[int(draw.integers(len(TYPES)))])]
        case 2:
            return [DropColumn(path)]
        case 3:
            return [RenameColumn(path, column)]
        case 4:
            return [ChangeType(path, BIGINT), MoveColumn(path, First())]
    # Two columns change their names.
    return [RenameColumn(path, "tmp"), AddColumn((*path[:-1], path[-1]), INT), RenameColumn((*path[:-1], "tmp"), name)]


def history(seed: int) -> list[TableSchema]:
    draw = np.random.default_rng(seed)
    found = [TableSchema(0, (DataField(0, "k", INT.not_null()), DataField(1, "v", INT)), 1, primary_keys=("k",))]
    found[0] = replace(found[0], options={"bucket": "1"})
    for step in range(60):
        try:
            following = change_schema(found[-1], changes(draw, found[-1], f"n{step}"), now_ms=step, has_snapshots=True)
        except (SchemaMismatchError, OptionError):
            continue
        if following is not found[-1]:
            found.append(following)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_what_any_changes_make_of_a_schema_fits_every_earlier_one(seed: int) -> None:
    schemas = history(seed)
    assert len(schemas) > 15
    assert [(a.id, b.id, p) for a, b in combinations(schemas, 2) for p in id_problems(a, b)] == []


@pytest.mark.parametrize("seed", range(5))
def test_an_id_that_no_history_gives_is_seen(seed: int) -> None:
    """Of a column, and of a nested field: one given before, and one above all that were given."""
    draw = np.random.default_rng(seed)
    schemas = history(seed)
    before, after = schemas[len(schemas) // 2], schemas[-1]
    held = {f.id for f in before.fields}
    given = sorted(set(range(before.highest_field_id + 1)) - held - {f.id for f in after.fields})
    at = int(draw.integers(len(after.fields)))
    for wrong in (*given[:3], after.highest_field_id + 1, after.highest_field_id + 64):
        fields = (*after.fields[:at], replace(after.fields[at], id=wrong), *after.fields[at + 1 :])
        assert list(id_problems(before, replace(after, fields=fields))), wrong
    assert list(id_problems(before, replace(after, highest_field_id=before.highest_field_id - 1)))


def test_every_history_that_paimon_wrote_fits() -> None:
    folders = sorted({p.parent for p in GOLDEN.rglob("schema/schema-*")})
    pairs = 0
    for folder in folders:
        schemas = sorted((decode_schema(p.read_bytes()) for p in folder.glob("schema-*")), key=lambda s: s.id)
        for before, after in combinations(schemas, 2):
            pairs += 1
            assert (str(folder), list(id_problems(before, after))) == (str(folder), [])
    assert pairs >= 3


def test_rows_that_pypaimon_numbers_from_0_are_not_compared() -> None:
    before = TableSchema(0, (DataField(0, "k", INT), DataField(1, "r", row(DataField(4, "x", INT)))), 5)
    counted = row(DataField(0, "x", INT), DataField(1, "y", INT))
    after = TableSchema(1, (DataField(0, "k", INT), DataField(1, "r", counted)), 5)
    assert list(id_problems(before, after)) == []
    inner = replace(after.fields[1], type=row(DataField(4, "x", INT), DataField(2, "y", INT)))
    assert list(id_problems(before, replace(after, fields=(after.fields[0], inner))))


NESTED = pa.schema(
    [
        pa.field("k", pa.int32(), nullable=False),
        ("a", pa.int32()),
        ("r", pa.struct([("x", pa.int32()), ("y", pa.int32())])),
    ]
)


@pytest.fixture
def evolved(tmp_path: Path) -> Table:
    """Columns k 0, a 1, r 2 with x 3 and y 4, then b 5; a file of each schema."""
    table = create_table(str(tmp_path / "t"), NESTED, ("k",), options={"bucket": "1", "write-only": "true"})
    table.write(pa.Table.from_pylist([{"k": 1, "a": 10, "r": {"x": 11, "y": 12}}], NESTED))
    wider = table.add_column("b", "INT")
    rows = [{"k": 2, "a": 20, "r": None, "b": 21}]
    wider.write(pa.Table.from_pylist(rows, NESTED.append(pa.field("b", pa.int32()))))
    return wider


def flip(table: Table, old: str, new: str) -> Path:
    path = Path(table.path, "schema", "schema-1")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"id": 1,\n      "name": "a"', '"id": 9,\n      "name": "a"'),
        ('"id": 3,\n            "name": "x"', '"id": 7,\n            "name": "x"'),
        ('"id": 3,\n            "name": "x"', '"id": 2,\n            "name": "x"'),
        ('"highestFieldId": 5', '"highestFieldId": 1'),
    ],
)
def test_a_read_of_older_files_refuses_a_schema_with_a_flipped_id(evolved: Table, old: str, new: str) -> None:
    path = flip(evolved, old, new)
    table = open_table(evolved.path)
    with pytest.raises(CorruptFileError) as caught:
        table.to_arrow()
    assert str(path) in caught.value.message and caught.value.fields["path"] == str(path)
    with pytest.raises(CorruptFileError):
        table.compact()
    # What was written before is read under the schema it was written under.
    assert table.to_arrow(snapshot=1).to_pylist() == [{"k": 1, "a": 10, "r": {"x": 11, "y": 12}}]
    found = [f for f in examine(handle_of(table), rows=True) if f.severity is Severity.ERROR]
    assert (str(path), "schema") in [(f.subject, f.rule) for f in found]
