"""Cases for folds: rows by key, and what a table's fold makes of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.engines import fold_for
from bucketline.state.lsm.merge.fold import Fold
from bucketline.state.lsm.merge.fold_choice import strict_fold
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND, arrow_type
from bucketline.state.types.logical import DataField, DataType

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A table whose primary key is `k`, and the rows of each key, oldest first."""

    types: Mapping[str, DataType]
    options: Mapping[str, str]
    keys: list[list[Row]]


def keyed_rows(
    draw: st.DrawFn, values: Mapping[str, st.SearchStrategy[Any]], kinds: st.SearchStrategy[int]
) -> list[list[Row]]:
    """Rows of some keys; values are drawn by column."""
    found = []
    sequence = 0
    for key in range(draw(st.integers(1, 4))):
        rows = []
        for _ in range(draw(st.integers(1, 6))):
            sequence += draw(st.integers(1, 2))
            drawn = {name: draw(strategy) for name, strategy in values.items()}
            rows.append({"k": key, **drawn, SEQUENCE: sequence, VALUE_KIND: draw(kinds)})
        found.append(rows)
    return found


def table_schema(types: Mapping[str, DataType], options: Mapping[str, str]) -> TableSchema:
    fields = tuple(DataField(i, name, t) for i, (name, t) in enumerate(types.items()))
    return TableSchema(0, fields, len(fields), primary_keys=("k",), options=dict(options))


def schema_of(types: Mapping[str, DataType], options: Mapping[str, str]) -> pa.Schema:
    columns = [pa.field(name, arrow_type(t), t.nullable) for name, t in types.items()]
    return pa.schema([*columns, pa.field(SEQUENCE, pa.int64(), False), pa.field(VALUE_KIND, pa.int8(), False)])


def fold_rows(case: Case, fold: Fold | None = None) -> list[Row]:
    """The rows after the fold, in the order of the keys. Without a fold, it is that of rows not in a table yet."""
    described = table_schema(case.types, case.options)
    fold = fold or strict_fold(fold_for(described))
    schema = schema_of(case.types, case.options)
    rows = [row for rows in case.keys for row in rows]
    # Chunks must not matter; a border inside the rows shows it.
    half = len(rows) // 2
    table = pa.concat_tables([pa.Table.from_pylist(part, schema=schema) for part in (rows[:half], rows[half:])])
    starts = np.zeros(len(rows), bool)
    starts[np.cumsum([0, *(len(r) for r in case.keys[:-1])])] = True
    found = fold.fold(table, starts)
    assert found.schema.equals(schema)
    found.validate(full=False)
    listed: list[Row] = found.to_pylist()
    return listed
