"""A job's table, created if it does not exist."""

from bucketline.conf.errors import OptionError
from bucketline.conf.job import CREATE_SCHEMA, JobConfig
from bucketline.conf.table.read_options import is_read_option
from bucketline.state.errors import TableNotFoundError
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.table.table import Table, create_table, open_table


def open_or_create(config: JobConfig) -> Table:
    """The job's table, created from the section `create` if it does not exist.

    Raises TableNotFoundError when there is neither, and what `create_table` and `open_table` raise.
    """
    if not has_table(config):
        if config.create is None:
            raise no_table(config)
        try:
            return create_table(
                config.table,
                config.create.schema,
                primary_key=config.create.primary_key,
                partition_by=config.create.partition_by,
                options=config.create.options,
                comment=config.create.comment,
                storage_options=config.storage,
            )
        except OptionError:
            if not has_table(config):
                raise
            # Another job has created it in the meantime.
    return open_existing(config)


def open_existing(config: JobConfig) -> Table:
    """The job's table, with those of the job's options that are for reading. Raises as `open_table`."""
    reading = {key: text for key, text in config.options.items() if is_read_option(key)}
    return open_table(config.table, options=reading, storage_options=config.storage)


def no_table(config: JobConfig) -> TableNotFoundError:
    """The error of a job whose table does not exist and that has no section `create`."""
    return TableNotFoundError(
        f"there is no table at {config.table}, and the job has no section 'create' to create it; add one, or use "
        "`bucketline create`",
        key=CREATE_SCHEMA.key,
        path=config.table,
    )


def has_table(config: JobConfig) -> bool:
    """Whether the job's table exists."""
    io, root = file_io_for(config.table, config.storage)
    return Schemas(io, root).latest_id() is not None
