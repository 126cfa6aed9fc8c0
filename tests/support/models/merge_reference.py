"""Merge engines one row at a time, in plain Python: the judge of the vectorised folds.

Written from the specification of Paimon 2.0's merge functions, not from the folds. A row is a dict of column values
with `_SEQUENCE_NUMBER` and `_VALUE_KIND`; rows of one key come oldest first. Values are Python values: decimals,
arrays lists, maps lists of pairs, nested rows dicts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from bucketline.state.types.logical import DataType
from tests.support.models.merge_functions import (
    DELETE,
    FUNCTIONS,
    KIND,
    SEQ,
    NoResultError,
    RefusedError,
    Row,
    rank,
)

_LOST = object()


class _Column:
    def __init__(self, name: str, data_type: DataType, function: str, options: Mapping[str, str]) -> None:
        own = {k.removeprefix(f"fields.{name}."): v for k, v in options.items() if k.startswith(f"fields.{name}.")}
        self.function = FUNCTIONS[function](data_type, own)
        self.ignores = own.get("ignore-retract") == "true"

    def finished(self, held: Any) -> Any:
        return self.function.finished(held)

    def add(self, held: Any, value: Any) -> Any:
        return self._try(self.function.add, held, value)

    def add_reversed(self, held: Any, value: Any) -> Any:
        return self._try(self.function.add_reversed, held, value)

    def retract(self, held: Any, value: Any) -> Any:
        return held if self.ignores else self._try(self.function.retract, held, value)

    def _try(self, change: Any, held: Any, value: Any) -> Any:
        if held is _LOST:
            return held
        try:
            return change(held, value)
        except NoResultError:
            return _LOST


def _checked(row: Row) -> Row:
    if any(v is _LOST for v in row.values()):
        raise RefusedError("arithmetic")
    return row


def aggregate(
    rows: Sequence[Row], types: Mapping[str, DataType], keys: Sequence[str], options: Mapping[str, str]
) -> Row:
    """What merge-engine aggregation makes of two or more rows of a key."""
    remove = options.get("aggregation.remove-record-on-delete") == "true"
    sequence = options.get("sequence.field", "").split(",")
    columns = {}
    for name, data_type in types.items():
        default = options.get("fields.default-aggregate-function", "last_non_null_value")
        function = options.get(f"fields.{name}.aggregate-function", default)
        columns[name] = _Column(name, data_type, "last_value" if name in sequence else function, options)
    held: Row = dict.fromkeys(types)
    deleted = False
    for row in rows:
        deleted = remove and row[KIND] == DELETE
        for name in types:
            if deleted or name in keys:
                held[name] = row[name]
            elif row[KIND] & 1:
                held[name] = columns[name].retract(held[name], row[name])
            else:
                held[name] = columns[name].add(held[name], row[name])
    if not deleted:
        held |= {name: columns[name].finished(v) for name, v in held.items() if name not in keys and v is not _LOST}
    return _checked({**held, SEQ: rows[-1][SEQ], KIND: DELETE if deleted else 0})


def partial_update(
    rows: Sequence[Row], types: Mapping[str, DataType], keys: Sequence[str], options: Mapping[str, str]
) -> Row:
    """What merge-engine partial-update makes of two or more rows of a key."""
    groups = [
        (k[len("fields.") : -len(".sequence-group")].split(","), v.split(","))
        for k, v in options.items()
        if k.endswith(".sequence-group")
    ]
    group_of = {name: (g, c) for g, c in groups for name in (*g, *c)}
    ignore = options.get("ignore-delete") == "true"
    remove = options.get("partial-update.remove-record-on-delete") == "true"
    removing = options.get("partial-update.remove-record-on-sequence-group", "").split(",")
    columns: dict[str, _Column] = {}
    for name, data_type in types.items():
        function = options.get(f"fields.{name}.aggregate-function", options.get("fields.default-aggregate-function"))
        if function is not None and name in group_of and name not in group_of[name][0]:
            columns[name] = _Column(name, data_type, function, options)
    held: Row = dict.fromkeys(types)
    filled = inserted = deleted = False
    sequence = rows[-1][SEQ]
    counted = False
    for row in rows:
        deleted = False
        if row[KIND] & 1:
            if not filled:
                held, filled = {n: row[n] for n in types}, True
            if ignore:
                continue
            if groups:
                held, deleted = _retract_groups(row, held, group_of, columns, removing)
            elif remove:
                if row[KIND] == DELETE:
                    held, deleted = {n: row[n] for n in types}, True
            else:
                raise RefusedError("retract")
        else:
            _add_groups(row, held, group_of, columns, keys)
            filled = inserted = True
        sequence, counted = row[SEQ], True
    held |= {name: columns[name].finished(v) for name, v in held.items() if name in columns and v is not _LOST}
    kind = DELETE if deleted or not inserted else 0
    return _checked({**held, SEQ: sequence if counted else rows[-1][SEQ], KIND: kind})


def _sequence(row: Row, group: Sequence[str]) -> Any:
    return [rank(row[g]) for g in group]


def _add_groups(
    row: Row, held: Row, group_of: Mapping[str, Any], columns: Mapping[str, _Column], keys: Sequence[str]
) -> None:
    before = dict(held)
    for name in held:
        if name in keys:
            held[name] = row[name]
            continue
        if name not in group_of:
            if row[name] is not None:
                held[name] = row[name]
            continue
        group = group_of[name][0]
        if all(row[g] is None for g in group):
            continue
        newer = _sequence(row, group) >= _sequence(before, group)
        if name in columns:
            held[name] = (columns[name].add if newer else columns[name].add_reversed)(held[name], row[name])
        elif newer:
            held[name] = row[name]


def _retract_groups(
    row: Row, held: Row, group_of: Mapping[str, Any], columns: Mapping[str, _Column], removing: Sequence[str]
) -> tuple[Row, bool]:
    found = dict(held)
    for name in held:
        if name not in group_of:
            continue
        group = group_of[name][0]
        if all(row[g] is None for g in group):
            continue
        newer = _sequence(row, group) >= _sequence(held, group)
        if newer and row[KIND] == DELETE and any(g in removing for g in group):
            return {n: row[n] for n in held}, True
        if name in columns:
            found[name] = columns[name].retract(held[name], row[name])
        elif newer:
            found[name] = row[name] if name in group else None
    return found, False
