"""Paimon's options for indexes inside of data files, `file-index.*`: which columns they name, by which index.

This release builds no such index, and readers do not need one. Paimon cannot write a table whose options name what is
not there.
Source: Paimon 2.0 FileIndexOptions.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bucketline.conf.errors import OptionError

PREFIX = "file-index."
_COLUMNS = ".columns"
_PARTS = 3
"""`bloom-filter.a.items`: the index, the column and its parameter. Other keys are no parameters of a column."""


@dataclass(frozen=True, slots=True)
class IndexedColumn:
    """A column that the option `key` names for an index; of a map perhaps the values under one key."""

    key: str
    index: str
    column: str
    map_key: str | None = None


def indexed_columns(options: Mapping[str, str]) -> Iterator[IndexedColumn]:
    """The columns that options name, in their order; a blank name is given as it is."""
    for key, value in options.items():
        if not _names_columns(key):
            continue
        index = key[len(PREFIX) : -len(_COLUMNS)]
        for name in value.split(","):
            column, bracket, rest = name.strip().partition("[")
            if bracket and rest.endswith("]"):
                yield IndexedColumn(key, index, column, rest[:-1])
            else:
                yield IndexedColumn(key, index, name.strip())


def parameter_problems(options: Mapping[str, str]) -> Iterator[OptionError]:
    """An error for each parameter of a column that has no such index."""
    known = {(c.index, name) for c in indexed_columns(options) for name in (c.column, f"{c.column}[{c.map_key}]")}
    for key in options:
        parts = key[len(PREFIX) :].split(".")
        if not key.startswith(PREFIX) or _names_columns(key) or len(parts) != _PARTS:
            continue
        index, column, _ = parts
        if (index, column) not in known:
            yield OptionError(
                f"'{key}' sets up an index of column {column!r}, which '{PREFIX}{index}{_COLUMNS}' does not name: "
                "Paimon cannot write such a table; add the column there, or remove this option",
                key=key,
                column=column,
            )


def rename_indexed(key: str, value: str, old: str, new: str) -> tuple[str, str]:
    """An option under which a column was renamed; any other one as it is."""
    if not key.startswith(PREFIX):
        return key, value
    if _names_columns(key):
        return key, ",".join(_renamed(name, old, new) for name in value.split(","))
    parts = key[len(PREFIX) :].split(".")
    if len(parts) != _PARTS:
        return key, value
    return f"{PREFIX}{parts[0]}.{_renamed(parts[1], old, new)}.{parts[2]}", value


def _names_columns(key: str) -> bool:
    return key.startswith(PREFIX) and key.endswith(_COLUMNS) and len(key) > len(PREFIX) + len(_COLUMNS)


def _renamed(name: str, old: str, new: str) -> str:
    column, bracket, rest = name.strip().partition("[")
    return f"{new}{bracket}{rest}" if column == old else name
