"""Prints rows on the standard output: a table for people, JSON lines or CSV for programs.

Rows are printed page by page as they arrive, so that a long result needs little memory and starts at once.
"""

from collections.abc import Iterable, Iterator
from enum import Enum

import click
import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from bucketline.state.types.if_else import if_else
from bucketline.streaming.cli.texts import cell_texts, json_texts, printable, printable_texts

PAGE_ROWS = 1000
"""The number of rows on a page: rows of a table that share column widths, or lines of JSON or CSV written at once."""

_UNLIMITED_WIDTH = 1 << 20


class Format(Enum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def print_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, form: Format) -> None:
    """Prints all rows. The names of the columns are printed even if there are no rows, except in JSON."""
    if form is Format.TABLE:
        _print_tables(_pages(_joined(batches)), schema)
        return
    pages = _pages(batches)
    if form is Format.CSV:
        _print(",".join(_csv_texts(pa.array(schema.names, pa.string())).to_pylist()))
    lines = _json_lines if form is Format.JSON else _csv_lines
    for page in pages:
        _print(_one_text(lines(page)))


def print_table(rows: pa.Table, form: Format) -> None:
    """Prints a small result."""
    print_rows(rows.to_batches(), rows.schema, form)


def console(*, stderr: bool = False) -> Console:
    """The console for tables: as wide as the terminal, and unlimited if there is no terminal."""
    output = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not output.is_terminal:
        output.width = _UNLIMITED_WIDTH
    return output


def _pages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, PAGE_ROWS):
            yield batch.slice(start, PAGE_ROWS)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields the rows, with small batches joined to pages, because each page of a table is printed with a header."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(b.num_rows for b in held) >= PAGE_ROWS:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held = []
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _print(text: str) -> None:
    # With color=True click passes the text on unchanged; otherwise it would remove escape sequences from the user's
    # data.
    click.echo(text, color=True)


def _json_lines(page: pa.RecordBatch) -> pa.Array:
    return json_texts(page.to_struct_array())


def _csv_lines(page: pa.RecordBatch) -> pa.Array:
    return pc.binary_join_element_wise(*(_csv_texts(cell_texts(c)) for c in page.columns), ",")


def _csv_texts(texts: pa.Array) -> pa.Array:
    """Returns the values as cells of CSV (RFC 4180): a null is an empty cell, and an empty string is quoted."""
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(texts, '"', '""'), '"', "")
    return pc.fill_null(if_else(pc.match_substring_regex(texts, '^$|[",\r\n]|^ | $'), quoted, texts), "")


def _one_text(lines: pa.Array) -> str:
    return str(pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_py())


def _print_tables(pages: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
    out = console()
    widths, fits, empty = [0] * len(schema), True, True
    for page in pages:
        empty = False
        cells = [_cells(c) for c in page.columns]
        widths = [max(w, *(cell.cell_len for cell in column)) for w, column in zip(widths, cells, strict=True)]
        grid = _grid(schema, cells, widths)
        unlimited = out.options.update(max_width=_UNLIMITED_WIDTH)
        fits = fits and out.measure(grid, options=unlimited).maximum <= out.width
        if fits:
            out.print(grid)
        else:
            _print_records(out, schema, cells)
    if empty:
        out.print(_grid(schema, [[] for _ in schema], widths))
        out.print(Text("(no rows)", style="dim"))


def _grid(schema: pa.Schema, cells: list[list[Text]], widths: list[int]) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for field, width in zip(schema, widths, strict=True):
        right = pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        grid.add_column(
            Text(printable(field.name)), justify="right" if right else "left", min_width=width, no_wrap=True
        )
    for row in zip(*cells, strict=True):
        grid.add_row(*row)
    return grid


def _print_records(out: Console, schema: pa.Schema, cells: list[list[Text]]) -> None:
    """Prints each row as lines of `column value`; used if a table would be wider than the terminal."""
    names = [printable(name) for name in schema.names]
    for row in zip(*cells, strict=True):
        grid = Grid.grid(padding=(0, 2))
        grid.add_column(style="bold", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, cell in zip(names, row, strict=True):
            grid.add_row(Text(name), cell)
        out.print(grid)
        out.print()


def _cells(column: pa.Array) -> list[Text]:
    texts = printable_texts(cell_texts(column)).to_pylist()
    return [Text("NULL", style="dim") if text is None else Text(text) for text in texts]
