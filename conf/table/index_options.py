"""Paimon's options for indexes of data files, `file-index.*`: which columns have which kind of index.

bucketline writes and uses only bloom filters. Readers do not need the other kinds of indexes. Paimon cannot write to a
table if these options name a column that does not exist.
Source: Paimon 2.0 FileIndexOptions, BloomFilterFileIndex.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, parse_bool, parse_float, parse_int, parse_size

T = TypeVar("T")

PREFIX = "file-index."
_COLUMNS = ".columns"
_PARTS = 3
"""Matches keys such as `bloom-filter.a.items`, which have an index, a column and a parameter. Other keys do not set a
parameter of a column.
"""

BLOOM_FILTER = "bloom-filter"
"""The name of bloom filters, in options and in files."""

IN_MANIFEST_THRESHOLD = Option(
    f"{PREFIX}in-manifest-threshold",
    parse_size,
    500,
    "largest index of a data file, in bytes, that is kept in manifests",
)
READ_ENABLED = Option(f"{PREFIX}read.enabled", parse_bool, True, "readers skip files by their indexes")

INDEX_OPTIONS: Mapping[str, Option[Any]] = {IN_MANIFEST_THRESHOLD.key: IN_MANIFEST_THRESHOLD}

_MOST_ITEMS = 1_000_000
_WRONG_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class IndexedColumn:
    """A column for which the option `key` asks for an index. For a map column, the index may be for the values of a
    single map key.
    """

    key: str
    index: str
    column: str
    map_key: str | None = None


@dataclass(frozen=True, slots=True)
class BloomColumn:
    """A column with bloom filters. For a map column, the filters may be for the values of a single map key.

    A filter is made for at most `items` different values. `wrong_share` is the rate of false positives,
    from 0 to 1.
    """

    column: str
    map_key: str | None = None
    items: int = _MOST_ITEMS
    wrong_share: float = _WRONG_SHARE


def bloom_columns(options: Mapping[str, str]) -> tuple[BloomColumn, ...]:
    """Returns the columns that have bloom filters, each once. Raises OptionError for a parameter that cannot be
    parsed.
    """
    found: dict[tuple[str, str | None], BloomColumn] = {}
    for indexed in indexed_columns(options):
        if indexed.index != BLOOM_FILTER or not indexed.column:
            continue
        names = [indexed.column]
        if indexed.map_key is not None:
            names.insert(0, f"{indexed.column}[{indexed.map_key}]")
        found[indexed.column, indexed.map_key] = BloomColumn(
            indexed.column,
            indexed.map_key,
            _parameter(options, names, "items", _item_count, _MOST_ITEMS),
            _parameter(options, names, "fpp", _share, _WRONG_SHARE),
        )
    return tuple(found.values())


def _parameter(
    options: Mapping[str, str], names: list[str], parameter: str, parse: Callable[[str], T], default: T
) -> T:
    """Returns a bloom filter's parameter for the first column name in `names` for which it is set, or else
    `default`.
    """
    for name in names:
        value = Option(f"{PREFIX}{BLOOM_FILTER}.{name}.{parameter}", parse, None, "").find(options)
        if value is not None:
            return value
    return default


def _item_count(text: str) -> int:
    count = parse_int(text)
    if count < 1:
        raise OptionError("must be at least 1", value=text)
    return count


def _share(text: str) -> float:
    share = parse_float(text)
    if not 0 < share < 1:
        raise OptionError("the rate of false positives must be between 0 and 1, for example 0.01", value=text)
    return share


def indexed_columns(options: Mapping[str, str]) -> Iterator[IndexedColumn]:
    """Yields the columns for which the options ask for an index in data files, in the order of the options. An empty
    name is yielded, too, so that the caller can refuse it.
    """
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
    """Yields an error for each option that sets a parameter of a column's index, if no option asks for this index."""
    known = {(c.index, name) for c in indexed_columns(options) for name in (c.column, f"{c.column}[{c.map_key}]")}
    for key in options:
        parts = key[len(PREFIX) :].split(".")
        if not key.startswith(PREFIX) or _names_columns(key) or len(parts) != _PARTS:
            continue
        index, column, _ = parts
        if (index, column) not in known:
            yield OptionError(
                f"'{key}' is for an index of column {column!r}, but '{PREFIX}{index}{_COLUMNS}' does not name the "
                "column: Paimon cannot write such a table; add the column to that option, or remove this option",
                key=key,
                column=column,
            )


def rename_indexed(key: str, value: str, old: str, new: str) -> tuple[str, str]:
    """Returns the key and value of an option with a column renamed from `old` to `new`. Key and value are unchanged
    if the option does not name the column.
    """
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
