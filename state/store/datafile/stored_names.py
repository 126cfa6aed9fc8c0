"""Checks that a data file has the columns of the schema that it was written under, by names and field ids.

A column that a file lacks is read as nulls, as Paimon does; so a damaged name would turn values into nulls. Files of
other tools (for example Hive's, after a migration) may lack columns, have other names and other ids, and are accepted.
A file is refused if exactly one of its columns does not fit: by its id, or, in a file without ids, because its name
differs from the column's name by one bit.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.near_names import flipped_name
from bucketline.state.types.logical import DataField


def ids_in(schema: pa.Schema, key: bytes) -> dict[str, int]:
    """Returns the field ids that a format keeps under a key of its columns' metadata, by name."""
    texts = {f.name: (f.metadata or {}).get(key, b"") for f in schema}
    return {name: int(text) for name, text in texts.items() if text.removeprefix(b"-").isdigit()}


def check_columns(names: Sequence[str], ids: Mapping[str, int], stored: Sequence[DataField]) -> None:
    """Raises CorruptFileError, naming the column, if a file's columns cannot be those of its schema."""
    if ids:
        of_id = {number: name for name, number in ids.items()}
        fit = [f for f in stored if ids.get(f.name) == f.id]
        odd = [f for f in stored if ids.get(f.name) != f.id and (f.name in ids or f.id in of_id)]
        if len(odd) == 1 and fit:
            (field,) = odd
            raise CorruptFileError(
                f"the schema has column {field.name} with id {field.id}, but in the file "
                + (
                    f"the column with id {field.id} is {of_id[field.id]}"
                    if field.id in of_id
                    else f"column {field.name} has id {ids[field.name]}"
                ),
                column=field.name,
            )
        return
    # System columns are first.
    own = list(names)[-len(stored) :] if stored else []
    wanted = [f.name for f in stored]
    odd_names = [(mine, its) for mine, its in zip(wanted, own, strict=False) if mine != its]
    if len(own) == len(wanted) > 1 and len(odd_names) == 1:
        ((mine, its),) = odd_names
        if flipped_name(its, wanted) == mine:
            raise CorruptFileError(
                f"the schema has column {mine}, and the file has {its} in its place: the same name with one bit "
                "flipped, and read as nulls it would lose all values. Put the file back from a copy; if it was written "
                "with that name (by Hive, before a migration), write it again with the column's",
                column=mine,
            )
