"""Makes the first schema of a new table. Columns, keys and options are checked before anything is written.

Source: Paimon 2.0 SchemaManager.createTable.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from bucketline.conf.durations import check_given_durations
from bucketline.conf.errors import OptionError
from bucketline.conf.option import check_names, check_texts
from bucketline.conf.storage_options import check_storage_options, refuse_storage_keys
from bucketline.conf.table.field_options import ColumnSettings
from bucketline.conf.table.new_table import check_new_table, lift_keys
from bucketline.state.bucket.defaults import check_defaults
from bucketline.state.commit.table_rules import branches_exist, rule_problems
from bucketline.state.errors import CorruptFileError, SchemaMismatchError, UnsupportedTableError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_age import check_row_time
from bucketline.state.format.storable import check_storable
from bucketline.state.lsm.merge.engines import fold_for
from bucketline.state.store.catalog.owned import check_partitions_kept
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.types.arrow import logical_fields
from bucketline.state.types.columns_text import parse_columns
from bucketline.state.types.logical import DataField, all_fields


def plan_schema(
    schema: pa.Schema | str,
    primary_key: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    comment: str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    time_ms: int,
) -> TableSchema:
    """Returns the schema that `create_table` would write for these arguments. The arguments and the errors are the same
    as for `create_table`.
    """
    storage = check_storage_options(storage_options)
    refuse_storage_keys(options or {}, "the table's options")
    check_texts(options or {}, "the table's options")
    check_names(primary_key, "primary_key")
    check_names(partition_by, "partition_by")
    rest, keys, partition_keys = lift_keys(dict(options or {}), primary_key, partition_by)
    check_given_durations(rest, origin="the new table's options")
    columns = parse_columns(schema) if isinstance(schema, str) else logical_fields(schema)
    fields = _key_columns_not_null(columns, keys)
    check_new_table(
        rest,
        columns=[f.name for f in fields],
        nested=[f.name for f in fields if not f.type.is_atomic],
        primary_key=keys,
        partition_keys=partition_keys,
    )
    new = TableSchema(
        id=0,
        fields=fields,
        highest_field_id=max((f.id for f in all_fields(fields)), default=-1),
        partition_keys=partition_keys,
        primary_keys=keys,
        options=rest,
        comment=comment,
        time_ms=time_ms,
        storage=storage,
    )
    check_row_time(new)
    check_columns(new)
    for problem in branches_exist(new, ()):
        raise problem
    return new


def check_columns(schema: TableSchema) -> None:
    """Checks that the columns suit the merge engine, the file formats, and the options that name columns.

    Raises the first error that `column_problems` yields.
    """
    for problem in column_problems(schema):
        raise problem


def column_problems(schema: TableSchema) -> Iterator[OptionError | UnsupportedTableError]:
    """Yields an error for each problem with the columns: an OptionError that names the option and the column, an
    UnsupportedTableError for columns that a file format cannot store, the errors of `fold_for`, and the errors of
    `rule_problems`.
    """
    try:
        yield from ColumnSettings(schema.options).problems([f.name for f in schema.fields])
    except OptionError as e:
        # If an option cannot be read, the checks that need this option are skipped.
        yield e
    checks: tuple[Callable[[TableSchema], object], ...] = (_check_names, check_storable, fold_for, check_defaults)
    for check in checks:
        try:
            check(schema)
        except (OptionError, UnsupportedTableError) as e:
            yield e
    yield from rule_problems(schema)


def _check_names(schema: TableSchema) -> None:
    if not schema.fields:
        raise OptionError("a table needs at least one column", key="schema")
    if any(not field.name.strip() for field in all_fields(schema.fields)):
        raise OptionError("a column or field needs a name, but one of the names is blank", key="schema")


def publish_first_schema(io: FileIO, root: str, new: TableSchema) -> bool:
    """Creates the table at `root`; returns False if there is a table already.

    Raises CorruptFileError if there are snapshots but no schema, UnsupportedTableError on storage that cannot publish,
    and OptionError as `check_partitions_kept` does.
    """
    io.require_publish()
    check_partitions_kept(new, io, root)
    schemas = Schemas(io, root)
    if schemas.latest_id() is not None:
        return False
    if Snapshots(io, root).latest_id() is not None:
        raise CorruptFileError(
            f"{root} has snapshots but no schema: it is a table whose schema files are missing; restore them from a "
            "copy, or create the new table elsewhere",
            path=root,
        )
    return schemas.create(new)


def check_table_path(path: str) -> None:
    """Checks that the path ends in valid names of a database and a table. Raises OptionError for `.`, `..` and empty
    names.
    """
    parts = path.partition("://")[2] if "://" in path else path
    names = parts.rstrip("/").split("/")
    database = names[-2].removesuffix(".db") if len(names) > 1 and names[-2].endswith(".db") else "default"
    for kind, name in (("table", names[-1]), ("database", database)):
        if name.strip() in ("", ".", ".."):
            raise OptionError(
                f"{path!r}: {name!r} is not a valid {kind} name; a path ends with the table's own directory, "
                "<warehouse>/<database>.db/<table>",
                key="path",
                path=path,
            )


def _key_columns_not_null(fields: Sequence[DataField], keys: Sequence[str]) -> tuple[DataField, ...]:
    names = [f.name for f in fields]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise SchemaMismatchError(f"column {twice!r} is declared twice", column=twice)
    return tuple(replace(f, type=f.type.not_null()) if f.name in keys else f for f in fields)
