"""The schema files of a table. A schema file never changes, so each file is read once.

Source: Paimon 2.0 SchemaManager.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

from bucketline.conf.option import StoredText
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.json_files.schema_json import TableSchema, decode_schema, encode_schema
from bucketline.state.format.paths import SCHEMA_DIR, parse_schema_id, schema_name
from bucketline.state.format.schema_history import id_problems
from bucketline.state.store.storage.decoding import naming_file
from bucketline.state.store.storage.errors import unless_missing
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.parallel import all_at_once


class Schemas:
    """The schemas of the table at `path`. A schema that was read once is kept in memory, because a schema file never
    changes.
    """

    def __init__(self, io: FileIO, path: str) -> None:
        self._io = io
        self._directory = f"{path}/{SCHEMA_DIR}"
        self._known: dict[int, TableSchema] = {}

    def ids(self) -> list[int]:
        """Returns the ids of all schemas, in ascending order."""
        ids = [parse_schema_id(name) for name in self._io.list_names(self._directory)]
        return sorted(i for i in ids if i is not None)

    def latest_id(self) -> int | None:
        """Returns the newest schema's id; None if there is no table at this path."""
        return max(self.ids(), default=None)

    def latest(self, known: int | None = None) -> TableSchema | None:
        """Returns the newest schema; None if there is no table at this path.

        `known` is the id of a schema that was the newest at some time. If there is no schema with the id after `known`,
        the folder is not listed.
        """
        if known is not None:
            asked: list[Callable[[], TableSchema | bool | None]] = [
                lambda: self._io.exists(self.path(known + 1)),
                lambda: unless_missing(lambda _: self.get(known), self.path(known)),
            ]
            is_followed, schema = all_at_once(self._io, asked)
            if not is_followed and isinstance(schema, TableSchema):
                return schema
        newest = self.latest_id()
        return None if newest is None else self.get(newest)

    def get(self, schema_id: int) -> TableSchema:
        """Returns the schema with this id. Raises StorageError if its file is missing, CorruptFileError if the file
        does not hold this schema.
        """
        known = self._known.get(schema_id)
        if known is None:
            path = self.path(schema_id)
            known = _decoded(path, self._io.read(path))
            if known.id != schema_id:
                raise CorruptFileError(f"{path} holds schema {known.id}", path=path, offset=0, found=known.id)
            self._known[schema_id] = known
        return known

    def read_under(self, schema: TableSchema) -> Callable[[int], TableSchema]:
        """Returns a function that returns schemas as `get` does, for data files that are read as rows of `schema`.
        Fields of the two schemas are matched by id.

        The function also raises CorruptFileError, with the name of the schema file, if no sequence of schema changes
        leads from one schema to the other, because columns would then be read as nulls.
        """
        fitting = {schema.id}

        def schema_of(schema_id: int) -> TableSchema:
            file_schema = self.get(schema_id)
            if schema_id not in fitting:
                self._check_ids(*sorted((file_schema, schema), key=lambda s: s.id))
                fitting.add(schema_id)
            return file_schema

        return schema_of

    def _check_ids(self, before: TableSchema, after: TableSchema) -> None:
        for problem in id_problems(before, after):
            path = self.path(after.id)
            raise CorruptFileError(
                f"{path}: {problem}. One of the two files is damaged, and rows would be misread; restore the file "
                "from a copy",
                path=path,
                offset=0,
                before=self.path(before.id),
            )

    def create(self, schema: TableSchema) -> bool:
        """Publishes a schema under its id; returns False if another writer has taken this id."""
        return self._io.publish(self.path(schema.id), encode_schema(schema))

    def path(self, schema_id: int) -> str:
        """Returns the path of a schema's file, which need not exist."""
        return f"{self._directory}/{schema_name(schema_id)}"


@lru_cache(64)
def _decoded(path: str, data: bytes) -> TableSchema:
    """Decodes the bytes of a schema file. Decoded schemas are cached, because tables are opened again and again."""
    with naming_file(path):
        schema = decode_schema(data)
    options: dict[str, str] = {key: StoredText.of(text, path) for key, text in schema.options.items()}
    return replace(schema, options=options)


def readable_schemas(io: FileIO, path: str) -> list[TableSchema]:
    """Returns the schemas of the table at `path` that can be read, newest first. Damaged files are skipped."""
    store, schemas = Schemas(io, path), []
    ids = [parse_schema_id(name) for name in io.list_names(f"{path}/{SCHEMA_DIR}")]
    for schema_id in sorted((i for i in ids if i is not None), reverse=True):
        with suppress(CorruptFileError):
            schemas.append(store.get(schema_id))
    return schemas
