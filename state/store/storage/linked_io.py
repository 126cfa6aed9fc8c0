"""The storage of a table that a catalog owns, as its link says."""

from bucketline.conf.catalog_link import CatalogLink
from bucketline.state.format.table_name import parse_table_name
from bucketline.state.store.server.sql_names import SqlLock, SqlNames
from bucketline.state.store.storage.sql_table_io import SqlTableIO
from bucketline.state.store.storage.wrapped_io import Inner


def linked_io(io: Inner, root: str, link: CatalogLink, *, is_object_store: bool) -> SqlTableIO:
    """The storage `io` of the table at `root`, with what its catalog asks for."""
    settings, name = link.settings.jdbc, parse_table_name(link.table)
    names = SqlNames.of(settings)
    lock = None
    if is_object_store if settings.locks is None else settings.locks:
        lock_id = f"{settings.key}.{name.database}.{name.table}"
        lock = SqlLock(names.database, lock_id, settings.lock_timeout_ms, settings.lock_sleep_ms)
    return SqlTableIO(io, root, name, lock, names if settings.syncs_properties else None)
