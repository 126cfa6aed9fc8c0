"""Opens a job's table, and creates it if it does not exist."""

from functools import partial

from bucketline.conf.errors import OptionError
from bucketline.conf.job import CREATE_SCHEMA, TABLE, JobConfig
from bucketline.conf.table.read_options import is_read_option
from bucketline.state.errors import TableNotFoundError
from bucketline.state.format.table_name import parse_table_name
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.table.table import Table, create_table, open_table
from bucketline.state.store.warehouse.catalog import catalog_of
from bucketline.state.store.warehouse.metastore import TableAddress


def open_or_create(config: JobConfig) -> Table:
    """Opens the job's table, or creates it from the section `create` if it does not exist.

    Raises TableNotFoundError if there is neither a table nor a section `create`, and the errors of `create_table` and
    `open_table`.
    """
    if not has_table(config):
        if config.create is None:
            raise no_table(config)
        assert config.create.schema is not None, "the columns are known"
        create_in = partial(create_table, storage_options=config.storage)
        try:
            return (create_in if config.catalog is None else catalog_of(config.catalog).create_table)(
                config.table,
                config.create.schema,
                primary_key=config.create.primary_key,
                partition_by=config.create.partition_by,
                options=config.create.options,
                comment=config.create.comment,
            )
        except OptionError:
            if not has_table(config):
                raise
            # Another job has created it in the meantime.
    return open_existing(config)


def open_existing(config: JobConfig) -> Table:
    """Opens the job's table with the job's options for reading. Raises the errors of `open_table`."""
    reading = {key: text for key, text in config.options.items() if is_read_option(key)}
    if config.catalog is not None:
        return catalog_of(config.catalog).table(config.table, options=reading)
    return open_table(config.table, options=reading, storage_options=config.storage)


def no_table(config: JobConfig) -> TableNotFoundError:
    """Returns the error for a job whose table does not exist and that has no section `create`."""
    return TableNotFoundError(
        f"there is no table at {config.table}, and the job has no section 'create' to create the table; add the "
        "section, or use `bucketline create`",
        key=CREATE_SCHEMA.key,
        path=config.table,
    )


def has_table(config: JobConfig) -> bool:
    """Returns True if the job's table exists."""
    if config.catalog is not None:
        return catalog_of(config.catalog).has_table(config.table)
    io, root = file_io_for(config.table, config.storage)
    return Schemas(io, root).latest_id() is not None


def require_publish(config: JobConfig) -> None:
    """Checks that commits can be published at the location of the job's table. Raises UnsupportedTableError if they
    cannot.
    """
    place = TableAddress(config.table, config.storage)
    if config.catalog is not None:
        try:
            place = catalog_of(config.catalog).place(config.table)
        except TableNotFoundError:
            return  # The catalog tells the table's location only after it has created the table.
    file_io_for(place.uri, place.storage)[0].require_publish()


def check_name(config: JobConfig) -> None:
    """Checks that a job can write to a table of this name. Raises OptionError if it cannot."""
    if config.catalog is not None and parse_table_name(config.table).branch is not None:
        raise OptionError(
            (
                f"{config.table!r} contains a branch; write only the name of the table, and set the branch with "
                "options.branch"
            ),
            key=TABLE.key,
        )
