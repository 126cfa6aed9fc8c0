"""The storage of a table that belongs to a catalog. The link (CatalogLink) says which catalog this is. For a catalog on
a REST server, see `rest_table_io`.

Another kind of catalog has the names of tables in a database. Paimon's JVM writers may need Paimon's lock in this
database. Then bucketline publishes snapshots and schemas while it holds the lock: without the lock, commits of the JVM
writers could overwrite its commits. After a change of the schema, the table's properties in the database are updated.

Source: Paimon 2.0 RenamingSnapshotCommit, JdbcCatalog.alterTableImpl.
"""

import logging
from contextlib import nullcontext
from dataclasses import dataclass

from bucketline.conf.catalog_link import CatalogLink
from bucketline.conf.catalog_options import MetastoreKind
from bucketline.state.determinism import World
from bucketline.state.errors import StorageError
from bucketline.state.format.json_files.schema_json import decode_schema
from bucketline.state.format.paths import SCHEMA_DIR, SNAPSHOT_DIR, parse_schema_id, parse_snapshot_id
from bucketline.state.format.table_name import TableName, parse_table_name
from bucketline.state.format.table_properties import table_properties
from bucketline.state.store.server.rest_settings import rest_client
from bucketline.state.store.server.rest_table import RestTable
from bucketline.state.store.server.sql_names import SqlLock, SqlNames
from bucketline.state.store.storage.objects.object_io import ObjectIO
from bucketline.state.store.storage.plain_io import plain_io
from bucketline.state.store.storage.rest_table_io import RestTableIO
from bucketline.state.store.storage.wrapped_io import Inner, WrappedIO

_LOG = logging.getLogger(__name__)


def linked_io(io: Inner, link: CatalogLink, world: World) -> Inner:
    """Returns the storage `io` of a table of a catalog, in a wrapper that does what the catalog needs when files are
    written. For example, the wrapper holds the catalog's lock while a snapshot is published.
    """
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


@dataclass(frozen=True, slots=True)
class SqlTableIO(WrappedIO):
    """The storage of the table `name` at `root`. `lock` is held while a snapshot or schema is published; None if the
    catalog needs no lock. `properties` is the database into which the table's options are copied; None if the options
    are not copied.
    """

    storage: Inner
    root: str
    name: TableName
    lock: SqlLock | None
    properties: SqlNames | None

    @property
    def inner(self) -> Inner:
        return self.storage

    def publish(self, path: str, data: bytes) -> bool:
        folder, _, file = path.rpartition("/")
        is_snapshot = folder == f"{self.root}/{SNAPSHOT_DIR}" and parse_snapshot_id(file) is not None
        is_schema = folder == f"{self.root}/{SCHEMA_DIR}" and parse_schema_id(file) is not None
        if not (is_snapshot or is_schema):
            return self.storage.publish(path, data)
        with nullcontext() if self.lock is None else self.lock.held():
            won = self.storage.publish(path, data)
        if won and is_schema and self.properties is not None:
            self._follow(self.properties, data)
        return won

    def _follow(self, names: SqlNames, data: bytes) -> None:
        """Writes the table's options, which are in the new schema file `data`, to the catalog's database. The schema
        has been changed already, so a failure is only logged as a warning.
        """
        try:
            names.set_properties(self.name, table_properties(decode_schema(data)))
        except StorageError as e:
            _LOG.warning(
                "the options of table %s in the catalog's database are older than the table's schema, because they "
                "could not be written: %s",
                self.name,
                e,
            )
