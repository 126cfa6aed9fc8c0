"""Schemas: the newest one is found by the one that is known, and by a listing only where that is not the newest."""

from dataclasses import replace

import pytest

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.json_files.schema_json import TableSchema, encode_schema
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.types.logical import DataField, parse_type
from tests.support.storage.faulty_io import FaultyIO
from tests.support.storage.memory_io import MemoryIO

FIRST = TableSchema(
    id=0,
    fields=(DataField(0, "id", parse_type("INT")),),
    highest_field_id=0,
    partition_keys=(),
    primary_keys=(),
    options={},
    comment=None,
)


def _schemas(*there: int) -> FaultyIO:
    io = FaultyIO(MemoryIO())
    for schema_id in there:
        io.overwrite(f"/t/schema/schema-{schema_id}", encode_schema(replace(FIRST, id=schema_id)))
    io.calls.clear()
    return io


@pytest.mark.parametrize(
    ("there", "known", "found", "lists"),
    [
        ((0, 1, 2), 2, 2, False),
        ((0, 1, 2), 1, 2, True),
        ((0, 1), 2, 1, True),
        ((1,), 1, 1, False),
        ((0, 1), None, 1, True),
        ((), 3, None, True),
    ],
    ids=["is the newest", "is followed", "was taken back", "is the only one", "is not known", "no table any more"],
)
def test_the_newest_schema_is_listed_for_only_where_the_known_one_is_not_it(
    there: tuple[int, ...], known: int | None, found: int | None, lists: bool
) -> None:
    io = _schemas(*there)
    newest = Schemas(io, "/t").latest(known)
    assert (None if newest is None else newest.id) == found
    assert ("list_names" in [name for name, _ in io.calls]) == lists


def test_a_known_schema_is_read_anew() -> None:
    io = _schemas(0)
    io.overwrite("/t/schema/schema-0", encode_schema(replace(FIRST, comment="made anew")))
    newest = Schemas(io, "/t").latest(0)
    assert newest is not None and newest.comment == "made anew"


def test_a_schema_file_is_decoded_once_in_a_process_as_long_as_its_bytes_are_the_same() -> None:
    io = _schemas(0)
    found = Schemas(io, "/t").get(0)
    assert Schemas(io, "/t").get(0) is found
    io.overwrite("/t/schema/schema-0", encode_schema(replace(FIRST, comment="put back from a copy")))
    assert Schemas(io, "/t").get(0).comment == "put back from a copy"


def test_a_file_that_holds_another_schema_is_named() -> None:
    io = _schemas(0)
    io.overwrite("/t/schema/schema-0", encode_schema(replace(FIRST, id=1)))
    with pytest.raises(CorruptFileError, match="/t/schema/schema-0 holds schema 1") as raised:
        Schemas(io, "/t").get(0)
    assert raised.value.fields == {"path": "/t/schema/schema-0", "offset": 0, "found": 1}
