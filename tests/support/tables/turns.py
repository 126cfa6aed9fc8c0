"""Several writers in turns on one table, and a plain dictionary that says what it must hold after each turn.

A run is what its seed says: the same seed makes the same table and the same turns.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.store.doctor.finding import Severity
from bucketline.state.store.table.table import handle_of, open_table
from bucketline.state.types.arrow import arrow_schema
from bucketline.state.types.row_kind import SHORT_NAMES
from tests.support.models.merge_model import VALUE_KINDS, Aggregation, Deduplicate, Model, PartialUpdate, draw_model
from tests.support.peers.arrow_text import rows_of, table_of
from tests.support.peers.every_type import BYTES, NAN, VALUES, name_of
from tests.support.peers.our_tables import ROW_KIND, fields_of, make_table
from tests.support.peers.peer import PaimonJava, PyPaimon
from tests.support.peers.rows import Field, assert_same_rows

KEYS: Mapping[str, Sequence[Any]] = {
    "INT": (-2147483648, -1, 0, 1, 7, 2147483647),
    "BIGINT": (-9223372036854775808, 0, 3, 9223372036854775807),
    "STRING": ("", "a", "aa", "B", "longer than eight", "ž🐎"),
    "DATE": ("1970-01-01", "0001-01-01", "9999-12-31", "2024-02-29"),
    "DECIMAL(9, 2)": ("0.00", "-1.50", "9999999.99"),
    "TIMESTAMP(3)": ("1969-12-31T23:59:59.999000", "2024-01-01T00:00:00", "2024-01-01T00:00:00.001000"),
    "TIMESTAMP(6)": ("1969-12-31T23:59:59.999999", "2024-01-01T00:00:00", "2024-01-01T00:00:00.000001"),
    "BOOLEAN": (True, False),
    "TINYINT": (-128, 0, 127),
}
"""Key types whose values all three writers put into the same buckets and the same order."""

PARTITIONS: Mapping[str, Sequence[Any]] = {
    "STRING": ("a", "b c=d%:", "é"),  # Java looks up first rows through files it names so: no slash
    "INT": (-1, 0, 20240101),
    "DATE": ("1969-12-31", "2024-02-29"),
}


WIDER = {"TINYINT": "INT", "SMALLINT": "INT", "INT": "BIGINT", "FLOAT": "DOUBLE", "VARCHAR(10)": "STRING"}


@dataclass(frozen=True)
class Shape:
    """What a table is; `model` says how its rows merge, and is None for an append table."""

    columns: Mapping[str, str]
    primary_key: tuple[str, ...]
    partition_by: tuple[str, ...]
    options: Mapping[str, str]
    model: Model | None

    def values(self, column: str) -> Sequence[Any]:
        kind = self.columns[column].removesuffix(" NOT NULL")
        if column in self.partition_by:
            return PARTITIONS[kind]
        if column in self.primary_key:
            return KEYS[kind]
        return (*VALUES[kind], None) if self.model is None else self.model.values(column)


def draw_shape(draw: random.Random, engine: str | None) -> Shape:
    """A random table with a merge engine, or without a primary key."""
    partition = {"p": draw.choice(list(PARTITIONS))} if draw.random() < 0.4 else {}
    keys = {f"k{i}": draw.choice(list(KEYS)) for i in range(draw.choice((1, 1, 2)))}
    model = None if engine is None else draw_model(draw, engine)
    columns = {name: f"{kind} NOT NULL" if model else kind for name, kind in (partition | keys).items()}
    options = {
        "num-sorted-run.compaction-trigger": str(draw.choice((2, 3, 5))),
        "target-file-size": draw.choice(("1 kb", "128 mb")),
        "metadata.stats-mode": draw.choice(("truncate(16)", "truncate(1)", "full", "none")),
        "manifest.merge-min-count": draw.choice(("2", "30")),
    }
    if model is not None:
        columns |= model.columns
        options |= model.options | {"bucket": str(draw.choice((1, 2, 5, -1)))}
        options |= {"dynamic-bucket.target-row-num": "4"} if options["bucket"] == "-1" else {}
        options |= draw.choice(({}, {"write-only": "true"}, {"compaction.force-up-level-0": "true"}))
        return Shape(columns, (*partition, *keys), tuple(partition), options, model)
    columns |= {name_of(kind): kind for kind in draw.sample(VALUE_KINDS, draw.choice((1, 3, len(VALUE_KINDS))))}
    if draw.random() < 0.5:
        options |= {"bucket": str(draw.choice((1, 3))), "bucket-key": ",".join(keys)}
    return Shape(columns, (), tuple(partition), options, None)


@dataclass
class Turns:
    """A table, those who write to it, and what it must hold. Call `turn` again and again."""

    path: Path
    shape: Shape
    draw: random.Random
    java: PaimonJava
    python: PyPaimon
    rows: dict[Any, dict[str, Any]] = field(default_factory=dict)
    bag: list[dict[str, Any]] = field(default_factory=list)
    history: dict[int, tuple[list[dict[str, Any]], list[Field]]] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    commits: int = 0
    has_python: bool = False

    def create(self) -> None:
        """Makes the table, by us or by Java."""
        shape = self.shape
        if self.draw.random() < 0.5:
            self.log.append(f"we create {shape}")
            make_table(
                self.path,
                shape.columns,
                primary_key=shape.primary_key,
                partition_by=shape.partition_by,
                options=shape.options,
            )
        else:
            self.log.append(f"java creates {shape}")
            self.java.create(
                self.path,
                fields_of(shape.columns),
                primary_keys=shape.primary_key,
                partition_keys=shape.partition_by,
                options=shape.options,
            )

    def turn(self) -> None:
        """One of the writers does something, and all readers are asked what the table holds."""
        model = self.shape.model
        choices = [self._we_write] * 4 + [self._java_writes] * 3 + [self._java_compacts]
        choices += [self._python_writes] * 2 if model is None or model.python_writes else []
        choices += [self._we_compact] * 2
        choices += [self._we_change_columns] * 2 if not isinstance(model, PartialUpdate | Aggregation) else []
        try:
            self.draw.choice(choices)()
            self.check()
        except BaseException as problem:
            problem.add_note("\n".join(self.log))
            raise

    def expected(self) -> list[dict[str, Any]]:
        return list(self.rows.values()) if self.shape.model else list(self.bag)

    def check(self) -> None:
        """All readers see what the dictionary says, now and in one snapshot of the past; and doctor finds nothing."""
        fields, model = fields_of(self.shape.columns), self.shape.model
        table = open_table(str(self.path))
        found = rows_of(table.to_arrow())
        expected = found if model is not None and model.hides_level_0 else self.expected()
        assert_same_rows(found, expected, fields)
        assert_same_rows(self.java.read(self.path), expected, fields)
        if model is None or model.python_reads:
            assert_same_rows(self.python.read(self.path), expected, fields)
        findings = [f for f in table.doctor(rows=True) if f.severity is Severity.ERROR]
        assert findings == []
        newest = handle_of(table).snapshot_store.latest_id()
        if newest is None:
            return
        # A snapshot shows the schema it was made with, a later change of schema makes none.
        self.history.setdefault(newest, (expected, fields))
        old = self.draw.choice(list(self.history))
        past, past_fields = self.history[old]
        assert_same_rows(rows_of(table.to_arrow(snapshot=old)), past, past_fields)
        assert_same_rows(self.java.read(self.path, options={"scan.snapshot-id": str(old)}), past, past_fields)
        if expected:
            self._look_up(self.draw.choice(expected), expected)

    def _look_up(self, row: dict[str, Any], expected: list[dict[str, Any]]) -> None:
        """Finds the rows that are like this one in one column, past all that readers skip."""
        # Readers differ about zeros with a sign and about NaN.
        columns = [c for c in self.shape.columns if row[c] not in (None, NAN, 0.0)]
        if not columns:
            return
        column = self.draw.choice(columns)
        kind = self.shape.columns[column].removesuffix(" NOT NULL")
        fields = fields_of(self.shape.columns)
        expected = [other for other in expected if other[column] == row[column]]
        table = open_table(str(self.path))
        schema = arrow_schema(handle_of(table).table_schema.fields)
        wanted = table_of([row], schema)[column][0]
        assert_same_rows(rows_of(table.to_arrow(filter=pc.field(column) == wanted)), expected, fields)
        # Java cannot filter pypaimon's decimals, and loses rows to its statistics of bytes.
        if not (self.has_python and (kind.startswith("DECIMAL") or kind in BYTES)):
            assert_same_rows(self.java.read(self.path, equals={column: row[column]}), expected, fields)

    # ---- who does what ----

    def _we_write(self) -> None:
        rows, pieces = self._rows(kinds=True), self.draw.choice((1, 1, 3))
        self.log.append(f"we write {rows} in {pieces}")
        table = open_table(str(self.path))
        schema = arrow_schema(handle_of(table).table_schema.fields)
        data = table_of(rows, schema)
        if self.shape.model:
            kinds = pa.array([int(SHORT_NAMES[row[ROW_KIND]]) for row in rows], pa.int8())
            data = data.append_column(ROW_KIND, kinds)
        size = max(1, len(rows) // pieces)
        table.write(pa.RecordBatchReader.from_batches(data.schema, data.to_batches(max_chunksize=size)))
        self._apply(rows)

    def _we_compact(self) -> None:
        strategy = self.draw.choice(("full", "minor"))
        self.log.append(f"we compact {strategy}")
        open_table(str(self.path)).compact(strategy)
        self._check_all(full=strategy == "full")

    def _we_change_columns(self) -> None:
        """Adds, drops, renames or widens a column that decides nothing."""
        columns = dict(self.shape.columns)
        model = self.shape.model
        fixed = {*self.shape.primary_key, *self.shape.partition_by, "k0", "k1", "s"}
        free = [name for name in columns if name not in fixed]
        change = self.draw.choice(("add", "drop", "rename", "widen"))
        name = self.draw.choice(free) if free else None
        table = open_table(str(self.path))
        if change == "add" or name is None:
            name = f"new{len(self.log)}"
            columns[name] = self.draw.choice(VALUE_KINDS)
            table.add_column(name, columns[name])
        elif change == "drop":
            del columns[name]
            table.drop_column(name)
        elif change == "rename":
            columns = {f"{n}_{len(self.log)}" if n == name else n: kind for n, kind in columns.items()}
            table.rename_column(name, f"{name}_{len(self.log)}")
        elif columns[name] in WIDER:
            columns[name] = WIDER[columns[name]]
            table.alter_column(name, type=columns[name])
        self.log.append(f"we {change} {name}, so that there are {columns}")
        renamed = dict(zip(self.shape.columns, columns, strict=True)) if len(columns) == len(self.shape.columns) else {}
        self.rows = {key: _with_columns(row, columns, renamed) for key, row in self.rows.items()}
        self.bag = [_with_columns(row, columns, renamed) for row in self.bag]
        self.shape = replace(self.shape, columns=columns)
        if model is not None:
            model.columns = {n: kind for n, kind in columns.items() if n not in self.shape.primary_key}

    def _java_writes(self) -> None:
        rows = self._rows(kinds=True)
        if isinstance(self.shape.model, Deduplicate) and self.shape.model.descending:
            # In the rows of one batch Java takes the largest, whatever the order.
            rows = list({tuple(row[column] for column in self.shape.primary_key): row for row in rows}.values())
        write_only = self.draw.choice((True, False, None))
        self.commits += 1
        mode: dict[str, Any] = {"mode": "batch"}
        if self.draw.random() < 0.5:
            mode = {"mode": "stream", "commit_user": "java", "commit_identifier": self.commits}
        self.log.append(f"java writes {rows} with write_only {write_only}, {mode}")
        self.java.write(self.path, rows, write_only=write_only, **mode)
        self._apply(rows)

    def _java_compacts(self) -> None:
        full = self.draw.random() < 0.5
        self.log.append(f"java compacts, full {full}")
        self.java.compact(self.path, full=full)
        self._check_all(full=full)

    def _python_writes(self) -> None:
        rows = self._rows(kinds=False)
        self.log.append(f"pypaimon writes {rows}")
        self.has_python = True
        self.python.write(self.path, rows)
        self._apply(rows)

    def _check_all(self, *, full: bool) -> None:
        """After a full compaction nothing is hidden."""
        model = self.shape.model
        if full and model is not None and model.hides_level_0:
            fields = fields_of(self.shape.columns)
            assert_same_rows(rows_of(open_table(str(self.path)).to_arrow()), self.expected(), fields)

    # ---- what is written ----

    def _rows(self, *, kinds: bool) -> list[dict[str, Any]]:
        shape = self.shape
        count = self.draw.choice((1, 3, 10, 40))
        # A partial update forgets a delete that an add of the same batch follows.
        gone: set[Any] = set()
        rows = []
        for _ in range(count):
            row = {column: self.draw.choice(shape.values(column)) for column in shape.columns}
            if shape.model:
                row[ROW_KIND] = self.draw.choice(shape.model.changes) if kinds else "+I"
            if isinstance(shape.model, PartialUpdate):
                shape.model.tidy(row, row[ROW_KIND])
                key = tuple(row[column] for column in shape.primary_key)
                if key in gone:
                    continue
                gone |= {key} if row[ROW_KIND] == "-D" else set()
            rows.append(row)
        return rows

    def _apply(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            plain = {column: row[column] for column in self.shape.columns}
            if self.shape.model is None:
                self.bag.append(plain)
                continue
            key = tuple(row[column] for column in self.shape.primary_key)
            merged = self.shape.model.merge(self.rows.pop(key, None), plain, row[ROW_KIND])
            if merged is not None:
                self.rows[key] = merged


def _with_columns(row: dict[str, Any], columns: Mapping[str, str], renamed: Mapping[str, str]) -> dict[str, Any]:
    """A row of before a change of columns as it is after it."""
    found = {renamed.get(name, name): value for name, value in row.items()}
    return {name: found.get(name) for name in columns}
