"""Schema files: TableSchema and its JSON.

Some options have other defaults in schema files of versions 1 and 2. `decode_schema` adds these defaults to the
options.
Source: Paimon 2.0 TableSchema, SchemaSerializer.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from bucketline.conf.secrets import MaskedOptions
from bucketline.conf.table.choices import FileFormat
from bucketline.conf.table.file_options import FILE_FORMAT
from bucketline.conf.table.table_options import BUCKET
from bucketline.conf.table.table_settings import TableSettings
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.near_names import check_names, check_options
from bucketline.state.types.logical import MAX_DEPTH, DataField, all_fields, depth_of, field_to_json, parse_field

CURRENT_VERSION = 3
_LONG = range(-(2**63), 2**63)
_INT = range(-(2**31), 2**31)
_MEMBERS = frozenset(
    ["version", "id", "fields", "highestFieldId", "partitionKeys", "primaryKeys", "options", "comment", "timeMillis"]
)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a table's schema. `fields` are in the order of the columns, and keys in the order in which they
    were declared.

    `storage` are the storage options of this process, which are neither in the schema file nor printed. `settings` are
    the options, parsed.

    All other members are the same as in Paimon's schema file.
    """

    id: int
    fields: tuple[DataField, ...]
    highest_field_id: int
    partition_keys: tuple[str, ...] = ()
    primary_keys: tuple[str, ...] = ()
    options: dict[str, str] = field(default_factory=dict)
    comment: str | None = None
    time_ms: int = 0
    version: int = CURRENT_VERSION
    storage: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    settings: TableSettings = field(init=False, repr=False, compare=False)
    _by_name: Mapping[str, DataField] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Other engines may have stored secrets among the options.
        object.__setattr__(self, "options", MaskedOptions(self.options))
        object.__setattr__(self, "settings", TableSettings(self.options))
        object.__setattr__(self, "_by_name", {f.name: f for f in reversed(self.fields)})

    @property
    def trimmed_primary_key(self) -> tuple[str, ...]:
        """Returns the primary key without the partition columns, in the order of the primary key. This key identifies a
        row within a bucket.
        """
        return tuple(k for k in self.primary_keys if k not in self.partition_keys)

    def field(self, name: str) -> DataField:
        found = self._by_name.get(name)
        if found is None:
            raise CorruptFileError(f"schema/schema-{self.id} has no column {name!r}", schema=self.id, column=name)
        return found

    def select(self, names: tuple[str, ...]) -> tuple[DataField, ...]:
        return tuple(self.field(n) for n in names)


def decode_schema(data: bytes) -> TableSchema:
    """Returns the schema in a schema file. Defaults of old file versions are added to the options.

    Raises CorruptFileError if the bytes are no schema, or if the file has a version that this release does not know.
    """
    try:
        members = json.loads(data)
        version = int(members.get("version", 1))
        if version > CURRENT_VERSION:
            raise CorruptFileError(
                f"schema version {version} is newer than {CURRENT_VERSION}, the newest version that this release reads"
                "; install a newer release",
                version=version,
            )
        check_names(members, _MEMBERS, "schema member")
        options = {str(k): str(v) for k, v in members["options"].items()}
        if version <= 2:
            options.setdefault(FILE_FORMAT.key, FileFormat.ORC.value)
        if version <= 1:
            options.setdefault(BUCKET.key, "1")
        comment = members.get("comment")
        schema = TableSchema(
            id=int(members["id"]),
            fields=tuple(parse_field(f) for f in members["fields"]),
            highest_field_id=int(members["highestFieldId"]),
            partition_keys=tuple(members["partitionKeys"]),
            primary_keys=tuple(members["primaryKeys"]),
            options=options,
            comment=None if comment is None else str(comment),
            time_ms=int(members.get("timeMillis", 0)),
            version=version,
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
        raise CorruptFileError(f"not a schema file: {e!r}") from e
    _check(schema)
    return schema


def _check(schema: TableSchema) -> None:
    """Raises CorruptFileError if the parts of a schema contradict each other, so that a file would be misread."""
    names = [f.name for f in schema.fields]
    for number in (schema.id, schema.highest_field_id, schema.time_ms):
        if number not in _LONG:
            raise CorruptFileError(f"not a schema file: {number} does not fit into 64 bits")
    for column in schema.fields:
        if depth_of(column.type) > MAX_DEPTH:
            raise CorruptFileError(
                f"column {column.name}: more than {MAX_DEPTH} types are nested in each other", column=column.name
            )
    for number in (f.id for f in all_fields(schema.fields)):
        if number not in _INT:
            raise CorruptFileError(f"not a schema file: the field id {number} does not fit into 32 bits")
    for key in (*schema.primary_keys, *schema.partition_keys):
        if key not in names:
            raise CorruptFileError(f"key column {key} is not among the columns", column=key)
    if len(set(names)) < len(names):
        raise CorruptFileError("two columns have the same name")
    if len({f.id for f in schema.fields}) < len(schema.fields):
        raise CorruptFileError("two fields have the same id, so columns of files cannot be told apart")
    check_options(schema.options)


def encode_schema(schema: TableSchema) -> bytes:
    """Returns the bytes of a schema file, with the members in the order in which Paimon's Java code writes them."""
    members: dict[str, object] = {
        "version": schema.version,
        "id": schema.id,
        "fields": [field_to_json(f) for f in schema.fields],
        "highestFieldId": schema.highest_field_id,
        "partitionKeys": list(schema.partition_keys),
        "primaryKeys": list(schema.primary_keys),
        "options": schema.options,
    }
    if schema.comment is not None:
        members["comment"] = schema.comment
    members["timeMillis"] = schema.time_ms
    return json.dumps(members, indent=2, ensure_ascii=False).encode()
