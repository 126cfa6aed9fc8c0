"""Our tables in the text form of rows that peers share (`tests.support.peers.rows`)."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.types.arrow import arrow_schema
from bucketline.state.types.row_kind import SHORT_NAMES
from tests.support.peers.arrow_text import rows_of, table_of
from tests.support.peers.rows import Field, Row

ROW_KIND = "_row_kind"


def make_table(
    path: Path,
    columns: Mapping[str, str],
    *,
    primary_key: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> Table:
    """A table of ours; `columns` maps names to SQL types."""
    sql = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    return create_table(str(path), sql, primary_key, partition_by, options)


def fields_of(columns: Mapping[str, str]) -> list[Field]:
    """The columns as fields that peers take; complex types are not among them."""
    return [{"name": name, "type": kind} for name, kind in columns.items()]


def write_rows(path: Path, rows: Iterable[Row]) -> int:
    """Commits rows, which may carry `_row_kind` (`+I`, `-U`, `+U`, `-D`), through us; the newest snapshot's id."""
    table = open_table(str(path))
    found = list(rows)
    data: Any = table_of(found, arrow_schema(handle_of(table).table_schema.fields))
    kinds = pa.array([int(SHORT_NAMES[row.get(ROW_KIND, "+I")]) for row in found], pa.int8())
    return table.write(data, kinds if table.primary_key else None)


def read_rows(path: Path, filter: pc.Expression | None = None) -> list[dict[str, Any]]:
    """The rows that we read."""
    return rows_of(open_table(str(path)).to_arrow(filter=filter))
