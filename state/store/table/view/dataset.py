"""A table as a `pyarrow.dataset.Dataset`, so that DuckDB, Polars and other readers of datasets read only the rows and
columns that they need.

Source: pyarrow 26 Dataset, Scanner. DuckDB and Polars use the dataset's `schema`, `scanner` and `to_batches`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError, UnsupportedTableError
from bucketline.state.sql.compute.plan_condition import Filter
from bucketline.state.store.table.view.sources import RowSource, Wanted

WantedColumns: TypeAlias = Sequence[str] | Mapping[str, pc.Expression]
"""The columns to return: names of columns, or a mapping from names of computed columns to their Arrow expressions."""

_NOT_SO = "read this dataset of bucketline by its methods scanner, to_batches and to_table"
_HINTS = ("batch_readahead", "fragment_readahead", "use_threads", "cache_metadata", "memory_pool")
"""Arguments that tune how Arrow reads. They are ignored, because they do not change the rows."""


class TableDataset(ds.UnionDataset):  # type: ignore[misc]
    """The rows of a table as a dataset. Reads apply columns, filters and limits themselves, and open only the files
    that can hold matching rows. The dataset shows the snapshot that was the newest when it was created.

    If Arrow's own code reads the dataset without the methods of this class, it finds a single file that does not exist.
    The name of this file says which methods to use.
    """

    _rows: RowSource
    _also: pc.Expression | None

    def __init__(self, rows: RowSource, also: pc.Expression | None = None) -> None:
        form, nowhere = ds.ParquetFileFormat(), LocalFileSystem()
        nothing = form.make_fragment(_NOT_SO, filesystem=nowhere)
        super().__init__(rows.schema, [ds.FileSystemDataset([nothing], rows.schema, form, nowhere)])
        self._rows, self._also = rows, also

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return TableDataset, (self._rows, self._also)

    def __repr__(self) -> str:
        return f"TableDataset({', '.join(self._rows.schema.names)})"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Returns all rows and columns as a stream, for libraries that know no datasets."""
        return self._reader(Wanted(also=self._also)).__arrow_c_stream__(requested_schema)

    def scanner(
        self,
        columns: WantedColumns | None = None,
        filter: Filter | None = None,
        batch_size: int | None = None,
        **hints: object,
    ) -> ds.Scanner:
        """Returns a scanner of `columns` of the rows that meet the filter. The scanner can be read once."""
        wanted = self._wanted(columns, filter, hints)
        computed = columns if isinstance(columns, Mapping) else None
        # Nothing is read ahead, so that little has been read if the reader stops early.
        return ds.Scanner.from_batches(self._reader(wanted, batch_size), columns=computed, batch_readahead=0)

    def to_batches(
        self,
        columns: WantedColumns | None = None,
        filter: Filter | None = None,
        batch_size: int | None = None,
        **hints: object,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows that meet the filter, in batches of at most `batch_size` rows."""
        if isinstance(columns, Mapping):
            return iter(self.scanner(columns, filter, batch_size, **hints).to_reader())
        return iter(self._reader(self._wanted(columns, filter, hints), batch_size))

    def to_table(
        self,
        columns: WantedColumns | None = None,
        filter: Filter | None = None,
        batch_size: int | None = None,
        **hints: object,
    ) -> pa.Table:
        """Returns all rows that meet the filter as one table."""
        if isinstance(columns, Mapping) or batch_size is not None:
            return self.scanner(columns, filter, batch_size, **hints).to_table()
        return self._rows.whole(self._wanted(columns, filter, hints))

    def head(
        self,
        num_rows: int,
        columns: WantedColumns | None = None,
        filter: Filter | None = None,
        batch_size: int | None = None,
        **hints: object,
    ) -> pa.Table:
        """Returns the first `num_rows` rows that meet the filter. The read ends after these rows."""
        wanted = replace(self._wanted(columns, filter, hints), limit=num_rows)
        computed = columns if isinstance(columns, Mapping) else None
        return ds.Scanner.from_batches(self._reader(wanted, batch_size), columns=computed).to_table()

    def count_rows(self, filter: Filter | None = None, **hints: object) -> int:
        """Returns the number of rows that meet the filter."""
        return sum(batch.num_rows for batch in self.to_batches([], filter, None, **hints))

    def take(
        self,
        indices: object,
        columns: WantedColumns | None = None,
        filter: Filter | None = None,
        batch_size: int | None = None,
        **hints: object,
    ) -> pa.Table:
        """Returns the rows at the positions `indices` of the table that `to_table` returns for the filter."""
        return self.to_table(columns, filter, batch_size, **hints).take(indices)

    def filter(self, expression: pc.Expression | None) -> "TableDataset":
        """Returns a dataset of the rows that also meet the condition `expression`. Raises SchemaMismatchError for a
        condition that is no Arrow expression.
        """
        if expression is None or not isinstance(expression, pc.Expression):
            raise SchemaMismatchError(f"the filter of a dataset must be an Arrow expression, found {expression!r}")
        return TableDataset(self._rows, expression if self._also is None else self._also & expression)

    def sort_by(self, sorting: object, **kwargs: Any) -> ds.InMemoryDataset:
        """Returns all rows, sorted, in memory."""
        return ds.InMemoryDataset(self.to_table()).sort_by(sorting, **kwargs)

    def join(self, right_dataset: Any, *given: Any, **kwargs: Any) -> ds.InMemoryDataset:
        """Returns all rows joined to the rows of another dataset, in memory."""
        return ds.InMemoryDataset(self.to_table()).join(_in_memory(right_dataset), *given, **kwargs)

    def join_asof(self, right_dataset: Any, *given: Any, **kwargs: Any) -> ds.InMemoryDataset:
        """Returns each row joined to the nearest row of another dataset, in memory."""
        return ds.InMemoryDataset(self.to_table()).join_asof(_in_memory(right_dataset), *given, **kwargs)

    def get_fragments(self, filter: Filter | None = None) -> NoReturn:
        """Raises UnsupportedTableError: rows are made by merging several files, so no fragment stands for a part of the
        rows.
        """
        raise UnsupportedTableError(f"a table has no fragments that can be read one by one; {_NOT_SO}")

    def replace_schema(self, schema: pa.Schema) -> NoReturn:
        """Raises UnsupportedTableError: the rows have the columns of the table, and no other schema."""
        raise UnsupportedTableError(
            "a dataset of bucketline cannot have another schema; choose columns with the argument columns, and cast "
            "the rows that are read"
        )

    def _reader(self, wanted: Wanted, batch_size: int | None = None) -> pa.RecordBatchReader:
        schema, rows = self._rows.read(wanted)
        return pa.RecordBatchReader.from_batches(schema, rows if batch_size is None else _cut(rows, batch_size))

    def _wanted(self, columns: WantedColumns | None, filter: Filter | None, hints: Mapping[str, object]) -> Wanted:
        unknown = next((name for name, value in hints.items() if name not in _HINTS and value is not None), None)
        if unknown is not None:
            raise OptionError(
                f"a table cannot be scanned with the argument {unknown}; leave the argument out", key=unknown
            )
        names = columns
        if isinstance(columns, Mapping):
            names = used_columns(self._rows.schema, list(columns.values()))
        return Wanted(None if names is None else list(names), filter, self._also)


def used_columns(schema: pa.Schema, computed: Sequence[pc.Expression]) -> list[str]:
    """Returns the columns that the expressions use. Raises SchemaMismatchError for an expression that does not fit the
    columns.
    """
    names = {str(number): expression for number, expression in enumerate(computed)}

    def fits(columns: pa.Schema) -> bool:
        try:
            ds.Scanner.from_batches([], schema=columns, columns=names)
        except pa.ArrowInvalid:
            return False
        return True

    if not fits(schema):
        raise SchemaMismatchError(
            f"expressions {computed} do not fit the columns of the table: {', '.join(schema.names)}"
        )
    return [name for name in schema.names if not fits(schema.remove(schema.get_field_index(name)))]


def _in_memory(dataset: Any) -> Any:
    return ds.InMemoryDataset(dataset.to_table()) if isinstance(dataset, TableDataset) else dataset


def _cut(rows: Iterator[pa.RecordBatch], batch_size: int) -> Iterator[pa.RecordBatch]:
    if batch_size < 1:
        raise OptionError(f"a batch must have at least one row, not {batch_size}", key="batch_size", value=batch_size)
    return (batch.slice(start, batch_size) for batch in rows for start in range(0, batch.num_rows, batch_size))
