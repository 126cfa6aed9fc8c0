"""Checks the names and field ids of a data file's columns against the schema under which the file was written.

As in Paimon, a column that a file does not have is read as nulls, so a damaged name would turn values into nulls. Files
of other tools (for example Hive's, after a migration) are accepted, although they may lack columns, or have other names
and ids. A file is refused only if exactly one of its columns does not fit the schema: the id differs, or, in a file
without ids, the name differs by one bit.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.near_names import flipped_name
from bucketline.state.types.logical import DataField


def ids_in(schema: pa.Schema, key: bytes) -> dict[str, int]:
    """Returns the field ids of columns, by column name. `key` is the key in the columns' metadata under which a format
    stores the ids.
    """
    texts = {f.name: (f.metadata or {}).get(key, b"") for f in schema}
    return {name: int(text) for name, text in texts.items() if text.removeprefix(b"-").isdigit()}


def check_columns(names: Sequence[str], ids: Mapping[str, int], stored: Sequence[DataField]) -> None:
    """Compares the columns of a data file with the columns of the schema with which the file was written. Raises
    CorruptFileError, which names the column, if a column has another name or another field id.

    `names` are the names of the file's columns. `ids` maps these names to field ids; it is empty if the file has no
    field ids. `stored` are the columns of the schema.
    """
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
    # System columns come first.
    own = list(names)[-len(stored) :] if stored else []
    wanted = [f.name for f in stored]
    odd_names = [(mine, its) for mine, its in zip(wanted, own, strict=False) if mine != its]
    if len(own) == len(wanted) > 1 and len(odd_names) == 1:
        ((mine, its),) = odd_names
        if flipped_name(its, wanted) == mine:
            raise CorruptFileError(
                f"the schema has column {mine}, and the file has {its} in its place: the same name with one bit "
                "flipped. All values of the column would be read as nulls. Restore the file from a copy; if it was "
                "written with that name (by Hive, before a migration), write it again with the name of the column",
                column=mine,
            )
