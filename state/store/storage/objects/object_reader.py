"""Reads an object as a file, at any position. The first request fetches the end of the object, which also gives its
size.
"""

from functools import partial

from bucketline.state.errors import StorageError
from bucketline.state.store.storage.objects.object_errors import (
    RANGE_NOT_THERE,
    STORE_ERRORS,
    object_error,
    object_errors,
    status_of,
)
from bucketline.state.store.storage.objects.object_store import StoreClients
from bucketline.state.store.storage.ranged_reader import TAIL_BYTES, RangedReader
from bucketline.state.store.storage.requests import RequestKind

try:
    import obstore
except ImportError:
    obstore = None

_WHOLE_ANSWER = "non-partial response"


def read_object(clients: StoreClients, path: str, key: str) -> RangedReader:
    """Opens an object for reading. The object must not change. Errors are those of FileIO."""
    size, tail = _open(clients, path, key)
    return RangedReader(size, tail, partial(_range, clients, path, key))


def _range(clients: StoreClients, path: str, key: str, start: int, end: int) -> memoryview:
    return clients.ask(
        RequestKind.GET, path, lambda client: memoryview(obstore.get_range(client, key, start=start, end=end))
    )


def _open(clients: StoreClients, path: str, key: str) -> tuple[int, memoryview]:
    """Returns the object's size, and its last bytes."""
    if not clients.takes_suffix:
        size = int(clients.ask(RequestKind.HEAD, path, lambda client: obstore.head(client, key))["size"])
        return size, _range(clients, path, key, max(0, size - TAIL_BYTES), size) if size else memoryview(b"")
    options = {"range": {"suffix": TAIL_BYTES}}
    try:
        answer = clients.answer(RequestKind.GET, lambda pair: obstore.get(pair.patient, key, options=options))
        return int(answer.meta["size"]), memoryview(answer.bytes())
    except STORE_ERRORS as e:
        if status_of(e) == RANGE_NOT_THERE:
            # An empty object has no last bytes, and some stores answer with an error.
            return 0, memoryview(b"")
        if _WHOLE_ANSWER not in str(e):
            raise object_error(path, e) from e
    return _open_whole(clients, path, key)


def _open_whole(clients: StoreClients, path: str, key: str) -> tuple[int, memoryview]:
    """Returns the object's size and its last bytes, for stores that send the whole object instead of a range. Some
    stores send only an empty object as a whole.
    """
    answer = clients.ask(RequestKind.GET, path, lambda client: obstore.get(client, key))
    with object_errors(path):
        size = int(answer.meta["size"])
        if size > TAIL_BYTES:
            raise StorageError(
                f"{path}: the store sends whole files when a part is requested, but reading needs parts; put the "
                "table into a store that supports range requests",
                path=path,
                retryable=False,
                missing=False,
            )
        return size, memoryview(answer.bytes())
