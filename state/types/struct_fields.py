"""Matches the fields of an incoming struct to the sub-fields of a ROW column: by name, by name in any case, or by
position.

Each rule is a function. `given` holds the names of the incoming fields, `own` the names of the ROW's sub-fields, and
`column` is the path of the column for errors. The function returns for each sub-field of the ROW the position of the
incoming field that goes into it. If a sub-field or an incoming field has no counterpart, the function raises
SchemaMismatchError, which names the field.
Source: Spark 4.0 TableOutputResolver (INSERT, UPDATE and MERGE of tables of its catalogs).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeAlias

from bucketline.state.errors import SchemaMismatchError

FieldRule: TypeAlias = Callable[[Sequence[str], Sequence[str], str], Sequence[int]]


def by_name(given: Sequence[str], own: Sequence[str], column: str) -> Sequence[int]:
    """Returns for each sub-field of the ROW the position of the incoming field with the same name."""
    twice = next((name for name, count in Counter(given).items() if count > 1), None)
    if twice is not None:
        raise _misfit(f"{column}.{twice}", "given twice", given, own)
    unknown = next((name for name in given if name not in own), None)
    if unknown is not None:
        raise _misfit(f"{column}.{unknown}", f"unknown to the table, whose {column} has {', '.join(own)}", given, own)
    missing = next((name for name in own if name not in given), None)
    if missing is not None:
        raise _misfit(
            f"{column}.{missing}", f"missing from the input, whose {column} has {', '.join(given)}", given, own
        )
    return [given.index(name) for name in own]


def by_spelling(given: Sequence[str], own: Sequence[str], column: str) -> Sequence[int]:
    """Returns for each sub-field of the ROW the position of the incoming field with the same name, as `by_name` does.
    An incoming name that the ROW does not have matches a sub-field whose name differs only in upper and lower case.
    """
    alike = {name: [o for o in own if o.lower() == name.lower()] for name in given if name not in own}
    return by_name([alike[n][0] if len(alike.get(n, ())) == 1 else n for n in given], own, column)


def by_position(given: Sequence[str], own: Sequence[str], column: str) -> Sequence[int]:
    """Matches the fields of an incoming struct (`given`) with the sub-fields of a ROW (`own`) by position, whatever
    their names are. Returns for each sub-field the position of its incoming field: 0, 1, 2 and so on. Raises an error
    if the numbers of fields differ; `column` names the ROW in the error.
    """
    if len(given) > len(own):
        path = f"{column}.{given[len(own)]}"
        raise _misfit(path, f"one field too many for the table, whose {column} has {', '.join(own)}", given, own)
    if len(given) < len(own):
        path = f"{column}.{own[len(given)]}"
        raise _misfit(path, f"missing from the input, whose {column} has {', '.join(given)}", given, own)
    return range(len(own))


def _misfit(path: str, what: str, given: Sequence[str], own: Sequence[str]) -> SchemaMismatchError:
    return SchemaMismatchError(f"field {path}: {what}", column=path, expected=list(own), found=list(given))
