"""The storage of a table that a REST catalog owns: the catalog decides which state of the table is the newest, and
lends keys for its files.

Lent keys expire. Each process requests new keys before the old keys expire, so a task needs only the table's link.

Source: Paimon 2.0 RESTTokenFileIO.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from bucketline.conf.catalog_link import CatalogLink
from bucketline.conf.storage_options import check_storage_options, known_storage_options
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import TableNotFoundError
from bucketline.state.format.paths import branch_at
from bucketline.state.store.server.owner import TableOwner
from bucketline.state.store.server.rest_client import NotThereError
from bucketline.state.store.server.rest_table import RestTable, table_path
from bucketline.state.store.storage.plain_io import plain_io
from bucketline.state.store.storage.wrapped_io import Inner, WrappedIO

_EARLY_MS = 3_600_000
"""Keys are renewed this long before they expire (an hour, in milliseconds), or after half of their lifetime if that is
later.
"""


@dataclass(frozen=True, slots=True)
class _Lent:
    """A storage that is used with access keys that a catalog has lent, and the time in milliseconds at which new keys
    are asked for.
    """

    options: Mapping[str, str]
    storage: Inner
    until_ms: int


_lent: dict[tuple[str, str], _Lent] = {}
_lent_lock = Lock()


@dataclass(frozen=True, slots=True)
class RestTableIO(WrappedIO):
    """The storage of the table at `root`, which belongs to a catalog on a REST server. The server may lend access keys
    for the storage. The object can be pickled, but the lent keys are not pickled: each process asks the server for
    keys.
    """

    storage: Inner
    """The storage that is used if the catalog lends no keys."""
    link: CatalogLink
    table: RestTable
    root: str
    lends_keys: bool = False
    world: World = SYSTEM_WORLD

    def owner_at(self, path: str) -> TableOwner | None:
        """Returns the owner of the table or branch whose metadata is at `path`; None if `path` is the path neither of
        this table nor of one of its branches.
        """
        if path == self.root:
            return self.table
        branch = branch_at(self.root, path)
        return None if branch is None else self.table.on_branch(branch)

    @property
    def inner(self) -> Inner:
        return self._lent().storage if self.lends_keys else self.storage

    def require_publish(self) -> None:
        """Does nothing, because the catalog publishes snapshots and schemas, so the storage need not be able to
        publish.
        """

    def _lent(self) -> _Lent:
        key, now_ms = (self.table.client.uri, str(self.table.uuid or self.table.name)), self.world.clock.now_ms()
        with _lent_lock:
            lent = _lent.get(key)
            if lent is None or now_ms >= lent.until_ms:
                lent = _lent[key] = self._borrowed(now_ms)
        return lent

    def _borrowed(self, now_ms: int) -> _Lent:
        try:
            answer = self.table.client.get(*table_path(self.table.name), "token")
        except NotThereError as e:
            raise TableNotFoundError(f"the catalog has no table {self.table.name}: {e.message}") from e
        token = {str(k): str(v) for k, v in (answer.get("token") or {}).items()}
        end_ms = int(answer.get("expiresAtMillis") or 0)
        life_ms = max(0, end_ms - now_ms)
        options = {**self.link.settings.storage, **known_storage_options(token)}
        storage = plain_io(self.link.path, check_storage_options(options), self.world)[0]
        return _Lent(options, storage, max(end_ms - _EARLY_MS, now_ms + life_ms // 2))


def owner_of(io: object, path: str) -> TableOwner | None:
    """Returns the catalog that decides which state of the table, or branch, at `path` is the newest; None if the files
    decide.
    """
    owned = owned_io(io)
    return None if owned is None else owned.owner_at(path)


def owned_io(io: object) -> RestTableIO | None:
    """Returns the storage of a catalog's table, without wrappers around it; None for other storage."""
    while isinstance(io, WrappedIO) and not isinstance(io, RestTableIO):
        io = io.inner
    return io if isinstance(io, RestTableIO) else None
