"""Access to files in object stores, through obstore: S3 and compatible stores, GCS, Azure.

A file is published by a put request with the condition that no object of this name exists. The request is sent once. If
its outcome is unclear (the answer is lost or late, or two puts conflict), an error is raised, and the commit loop finds
out what happened. A store that accepts the condition but ignores it would lose commits, so each process tries the
condition once before its first commit. Paths are `bucket/key`. Keys are used unchanged: nothing is escaped. There are
no folders.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa

from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import StorageError, UnsupportedTableError
from bucketline.state.format.paths import SCHEMA_DIR, temporary_name
from bucketline.state.store.storage.errors import exists_already, unless_missing
from bucketline.state.store.storage.file_info import FileInfo
from bucketline.state.store.storage.forks import check_not_forked
from bucketline.state.store.storage.objects.object_errors import (
    STORE_ERRORS,
    TAKEN_ERRORS,
    object_error,
    says_condition_is_unknown,
)
from bucketline.state.store.storage.objects.object_reader import read_object
from bucketline.state.store.storage.objects.object_store import (
    ClientPair,
    StoreAddress,
    StoreClients,
    address_of,
    clients_of,
)
from bucketline.state.store.storage.objects.object_writer import PART_BYTES, ObjectWriter
from bucketline.state.store.storage.requests import RequestCounts, RequestKind
from bucketline.state.store.storage.wrapped_io import bare

try:
    import obstore
except ImportError:
    obstore = None

_PAGE_FILES = 1000
"""The number of objects in a page of a listing, and in one request that deletes objects."""

_PARTS_AT_ONCE = 3
_TRIES = 3
"""How often the creation of a file is repeated if the store says that the name is taken although there is no such
object.
"""


@dataclass(frozen=True, slots=True)
class ObjectIO:
    """The files in a bucket or container. `root` is the path of the folder for which the ObjectIO was opened. Errors
    are those of FileIO.
    """

    answers_late: ClassVar[bool] = True

    address: StoreAddress
    root: str
    world: World = SYSTEM_WORLD

    @property
    def requests(self) -> RequestCounts:
        """Returns the number of requests that this process has sent to the bucket."""
        return self._clients.counter.counts

    def require_publish(self) -> None:
        clients = self._clients
        with clients.lock:
            if clients.refuses_second is None:
                clients.refuses_second = self._refuses_second()
        if not clients.refuses_second:
            raise UnsupportedTableError(
                f"cannot commit safely to the {self.address.kind.value} bucket {self.address.bucket!r}: the store "
                "ignores the condition 'If-None-Match: *', which creates an object only if there is none of that "
                "name, so two writers could lose each other's commits. Put the table into a store that supports "
                "this condition; reading the table works in this store too",
                bucket=self.address.bucket,
            )

    def read(self, path: str) -> bytes:
        key = self._key(path)
        return self._clients.ask(RequestKind.GET, path, lambda client: bytes(obstore.get(client, key).bytes()))

    def read_optional(self, path: str) -> bytes | None:
        return unless_missing(self.read, path)

    def read_unchanging(self, path: str) -> bytes:
        remembered = self._clients.remembered
        data = remembered.get(path)
        if data is None:
            data = self.read(path)
            remembered.put(path, data)
        return data

    def write_new(self, path: str, data: bytes) -> None:
        self._create(path, data)
        self._clients.remembered.put(path, data)

    def publish(self, path: str, data: bytes) -> bool:
        self.require_publish()
        key = self._key(path)
        try:
            self._clients.answer(RequestKind.PUT, lambda pair: _create_at(pair.once, key, data))
        except TAKEN_ERRORS as e:
            return self._is_ours(path, data, e)
        except STORE_ERRORS as e:
            raise object_error(path, e) from e
        return True

    def overwrite(self, path: str, data: bytes) -> None:
        clients, key = self._clients, self._key(path)
        clients.remembered.forget(path)
        clients.ask(RequestKind.PUT, path, lambda client: obstore.put(client, key, data, use_multipart=False))

    def list_names(self, directory: str) -> list[str]:
        clients, prefix = self._clients, self._key(directory)
        listing = clients.ask(
            RequestKind.LIST, directory, lambda client: obstore.list_with_delimiter(client, prefix or None)
        )
        paths = [*listing["common_prefixes"], *(o["path"] for o in listing["objects"])]
        clients.counter.add(RequestKind.LIST, _pages(len(paths)) - 1)
        return sorted({p.rpartition("/")[2] for p in paths if p != prefix})

    def list_files(self, directory: str) -> list[FileInfo]:
        bucket, prefix = self.address.bucket, self._key(directory)
        files = [
            FileInfo(f"{bucket}/{path}", size, _millis(written))
            for path, size, written in self._listed(directory)
            if path != prefix
        ]
        return sorted(files, key=lambda f: f.path)

    def exists(self, path: str) -> bool:
        return unless_missing(self._head, path) is not None

    def size(self, path: str) -> int:
        return self._head(path)[0]

    def modified_ms(self, path: str) -> int:
        return _millis(self._head(path)[1])

    def delete(self, path: str) -> None:
        clients, key = self._clients, self._key(path)
        clients.remembered.forget(path)
        clients.ask(RequestKind.DELETE, path, lambda client: _delete_at(client, key))

    def delete_folder(self, directory: str) -> None:
        clients = self._clients
        keys = [key for key, _, _ in self._listed(directory)]
        for key in keys:
            clients.remembered.forget(f"{self.address.bucket}/{key}")
        for start in range(0, len(keys), _PAGE_FILES):
            page = keys[start : start + _PAGE_FILES]
            clients.ask(RequestKind.DELETE, directory, partial(_delete_at, keys=page))

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(read_object(self._clients, path, self._key(path)), mode="r")

    def open_output(self, path: str) -> pa.NativeFile:
        def whole(data: bytes) -> None:
            self._create(path, data)

        def parts(coming: Iterator[bytes]) -> None:
            self._create_in_parts(path, coming)

        return pa.PythonFile(ObjectWriter(path, whole, parts), mode="w")

    @property
    def _clients(self) -> StoreClients:
        check_not_forked(self.root)
        return clients_of(self.address)

    def _key(self, path: str) -> str:
        bucket, _, key = path.partition("/")
        assert bucket == self.address.bucket, f"{path} is not in the bucket {self.address.bucket}"
        return key

    def _create(self, path: str, data: bytes) -> None:
        clients, key = self._clients, self._key(path)
        for left in reversed(range(_TRIES)):
            try:
                clients.answer(RequestKind.PUT, lambda pair: _create_at(pair.patient, key, data))
                return
            except TAKEN_ERRORS as e:
                # The client may have repeated its own put, because the answer was lost.
                stored = self.read_optional(path)
                if stored == data:
                    return
                if stored is not None:
                    raise exists_already(path) from e
                if not left:
                    raise _not_there(path, e) from e
            except STORE_ERRORS as e:
                raise object_error(path, e) from e

    def _create_in_parts(self, path: str, coming: Iterator[bytes]) -> None:
        """Creates a file from the parts that `coming` yields. The request that completes an upload takes no condition,
        so whether the name is free is checked when the upload begins.
        """
        clients = self._clients
        if self.exists(path):
            raise exists_already(path)
        clients.counter.add(RequestKind.PUT, 2)

        def counted() -> Iterator[bytes]:
            for part in coming:
                clients.counter.add(RequestKind.PUT)
                yield part

        obstore.put(
            clients.pair.patient,
            self._key(path),
            counted(),
            use_multipart=True,
            chunk_size=PART_BYTES,
            max_concurrency=_PARTS_AT_ONCE,
        )

    def _is_ours(self, path: str, data: bytes, answer: Exception) -> bool:
        """Called when a put request is refused because the object exists. Returns True if the object holds the bytes
        `data`: then an earlier sending of the same request has created the object.

        Raises StorageError if there is no object of this name: then two puts conflicted, and it is not known which of
        them will win.
        """
        stored = self.read_optional(path)
        if stored is None:
            raise _not_there(path, answer) from answer
        return stored == data

    def _refuses_second(self) -> bool:
        """Returns True if the store refuses to create an object under a name that exists. To find out, creates a
        temporary object twice. Raises StorageError if requests fail.
        """
        for left in reversed(range(_TRIES)):
            path = f"{self.root}/{SCHEMA_DIR}/{temporary_name('probe', self.world.ids.new_uuid())}"
            try:
                return self._keeps_first(path)
            except StorageError as e:
                if not left or not e.retryable:
                    raise
            finally:
                with suppress(StorageError):
                    self.delete(path)
        raise AssertionError("unreachable: the last try returns or raises an error")

    def _keeps_first(self, path: str) -> bool:
        clients, key = self._clients, self._key(path)
        try:
            for content in (b"first", b"second"):
                clients.answer(RequestKind.PUT, partial(_create_once, key, content))
        except TAKEN_ERRORS as e:
            return self._is_ours(path, b"first", e)
        except STORE_ERRORS as e:
            if not says_condition_is_unknown(e):
                raise object_error(path, e) from e
        return False

    def _head(self, path: str) -> tuple[int, datetime]:
        key = self._key(path)
        meta = self._clients.ask(RequestKind.HEAD, path, lambda client: obstore.head(client, key))
        return int(meta["size"]), meta["last_modified"]

    def _listed(self, directory: str) -> list[tuple[str, int, datetime]]:
        """Returns (key, size, time of writing) of all objects below a folder."""
        clients, prefix = self._clients, self._key(directory) or None

        def listed(client: Any) -> list[tuple[str, int, datetime]]:
            pages = obstore.list(client, prefix, chunk_size=_PAGE_FILES)
            return [(str(o["path"]), int(o["size"]), o["last_modified"]) for page in pages for o in page]

        objects = clients.ask(RequestKind.LIST, directory, listed)
        clients.counter.add(RequestKind.LIST, _pages(len(objects)) - 1)
        return objects


def requests_sent(io: object) -> RequestCounts:
    """Returns the number of requests that this process has sent to the bucket of `io`; zero for storage that is no
    object store.
    """
    storage = bare(io)
    return storage.requests if isinstance(storage, ObjectIO) else RequestCounts()


def object_io_for(uri: str, storage: Mapping[str, str], world: World) -> tuple[ObjectIO, str]:
    """Returns the ObjectIO for a URI, and the path that this ObjectIO uses for the URI. `storage` are storage options
    that have been checked.

    Raises OptionError for settings that do not fit, and if obstore is not installed. Sends no request.
    """
    address, key = address_of(uri, storage)
    root = f"{address.bucket}/{key}".rstrip("/")
    io = ObjectIO(address, root, world)
    clients_of(address)
    return io, root


def _create_at(client: Any, key: str, data: bytes) -> None:
    obstore.put(client, key, data, mode="create", use_multipart=False)


def _create_once(key: str, data: bytes, pair: ClientPair) -> None:
    _create_at(pair.once, key, data)


def _delete_at(client: Any, keys: str | list[str]) -> None:
    with suppress(FileNotFoundError):
        obstore.delete(client, keys)


def _not_there(path: str, answer: Exception) -> StorageError:
    """Returns the error for a store that answers (`answer`) that an object exists although there is none."""
    error = object_error(path, answer)
    return error.reworded(error.message, retryable=True, missing=False)


def _pages(count: int) -> int:
    return 1 + max(0, count - 1) // _PAGE_FILES


def _millis(time: datetime) -> int:
    return int(time.timestamp() * 1000)
