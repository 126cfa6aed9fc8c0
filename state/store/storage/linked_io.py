"""Adds to a table's storage what the table's catalog needs, by the table's link."""

from bucketline.conf.catalog_link import CatalogLink
from bucketline.conf.catalog_options import MetastoreKind
from bucketline.state.determinism import World
from bucketline.state.format.table_name import parse_table_name
from bucketline.state.store.server.rest_settings import rest_client
from bucketline.state.store.server.rest_table import RestTable
from bucketline.state.store.server.sql_names import SqlLock, SqlNames
from bucketline.state.store.storage.objects.object_io import ObjectIO
from bucketline.state.store.storage.plain_io import plain_io
from bucketline.state.store.storage.rest_table_io import RestTableIO
from bucketline.state.store.storage.sql_table_io import SqlTableIO
from bucketline.state.store.storage.wrapped_io import Inner


def linked_io(io: Inner, link: CatalogLink, world: World) -> Inner:
    """Returns the storage `io` with the additions that the catalog of the linked table needs."""
    name = parse_table_name(link.table)
    root = plain_io(link.path, link.settings.storage, world)[1]
    if link.settings.metastore is MetastoreKind.REST:
        rest = link.settings.rest
        return RestTableIO(io, link, RestTable(rest_client(rest), name, link.uuid), root, rest.lends_keys, world)
    settings = link.settings.jdbc
    names = SqlNames.of(settings)
    lock = None
    if isinstance(io, ObjectIO) if settings.locks is None else settings.locks:
        lock_id = f"{settings.key}.{name.database}.{name.table}"
        lock = SqlLock(names.database, lock_id, settings.lock_timeout_ms, settings.lock_sleep_ms)
    return SqlTableIO(io, root, name, lock, names if settings.syncs_properties else None)
