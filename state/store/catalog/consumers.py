"""The consumers of a table: for each consumer, the id of the snapshot that the consumer reads next. A consumer still
needs this snapshot and all later snapshots.

Source: Paimon 2.0 ConsumerManager, Consumer.
"""

import json

from bucketline.state.determinism import World
from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.paths import CONSUMER_DIR
from bucketline.state.store.catalog.pins import pin_of, pinned
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.storage_clock import modified_or_unknown, storage_now_ms

_PREFIX = "consumer-"
_LONG = range(-(2**63), 2**63)


def next_of_consumers(io: FileIO, path: str) -> dict[str, int]:
    """Returns, for each consumer of the table at `path`, the id of the snapshot that the consumer will read next.
    Raises CorruptFileError.
    """
    next_ids = {}
    for name in io.list_names(f"{path}/{CONSUMER_DIR}"):
        data = io.read_optional(f"{path}/{CONSUMER_DIR}/{name}") if name.startswith(_PREFIX) else None
        if data is not None:
            next_ids[name.removeprefix(_PREFIX)] = _next_snapshot(f"{path}/{CONSUMER_DIR}/{name}", data)
    return next_ids


def broken_consumers(io: FileIO, path: str) -> list[tuple[str, str]]:
    """Returns the path of each consumer file that cannot be read, with the reason."""
    broken = []
    for name in io.list_names(f"{path}/{CONSUMER_DIR}"):
        file = f"{path}/{CONSUMER_DIR}/{name}"
        data = io.read_optional(file) if name.startswith(_PREFIX) else None
        try:
            if data is not None:
                _next_snapshot(file, data)
        except CorruptFileError as e:
            broken.append((file, e.message))
    return broken


def set_next_of_consumer(io: FileIO, path: str, name: str, next_snapshot: int) -> None:
    """Stores the id of the snapshot that a consumer will read next. Expiry keeps this snapshot and all later
    snapshots.
    """
    io.overwrite(f"{path}/{CONSUMER_DIR}/{_PREFIX}{name}", json.dumps({"nextSnapshot": next_snapshot}).encode())


def drop_consumer(io: FileIO, path: str, name: str) -> None:
    """Removes a consumer. A consumer that does not exist is no error."""
    io.delete(f"{path}/{CONSUMER_DIR}/{_PREFIX}{name}")


def begin_consumer(snapshots: Snapshots, io: FileIO, path: str, name: str, next_snapshot: int, world: World) -> None:
    """Stores the next snapshot of a consumer as `set_next_of_consumer` does. A reader that has just begun must use this
    function, because no consumer protects its snapshots from expiry yet.

    Raises RemovalUnderWayError if the snapshots are being removed; nothing is stored then.
    """
    held = next_of_consumers(io, path).get(name)
    is_held = held is not None and held <= next_snapshot
    snapshot = None if is_held else snapshots.get(next_snapshot)
    if snapshot is None:
        # Nothing is stored for a snapshot that no longer exists. The reader gets an error when it reads the snapshot.
        if is_held or next_snapshot > (snapshots.latest_id() or 0):
            set_next_of_consumer(io, path, name, next_snapshot)
        return
    with pinned(io, path, pin_of(path, snapshot), world) as pin:
        if snapshot.is_same_as(snapshots.get(next_snapshot)):
            set_next_of_consumer(io, path, name, next_snapshot)
            pin.check()


def drop_idle_consumers(io: FileIO, path: str, *, idle_ms: int, world: World) -> list[str]:
    """Removes the consumers whose files have not changed for `idle_ms`, and returns their names.

    The storage's clock decides. The storage is asked for its time only if a consumer seems to be idle by the clock of
    `world`.
    """
    modified, now_ms = {}, world.clock.now_ms()
    for name in io.list_names(f"{path}/{CONSUMER_DIR}"):
        file = f"{path}/{CONSUMER_DIR}/{name}"
        modified_ms = _modified_ms(io, file) if name.startswith(_PREFIX) else None
        if modified_ms is not None and modified_ms + idle_ms < now_ms:
            modified[name] = modified_ms
    if not modified:
        return []
    now_ms = storage_now_ms(io, path, world)
    idle = [name for name, modified_ms in modified.items() if modified_ms + idle_ms < now_ms]
    for name in idle:
        io.delete(f"{path}/{CONSUMER_DIR}/{name}")
    return [name.removeprefix(_PREFIX) for name in idle]


def _modified_ms(io: FileIO, file: str) -> int | None:
    try:
        return modified_or_unknown(io, file)
    except StorageError as e:
        if e.missing:
            return None
        raise


def _next_snapshot(file: str, data: bytes) -> int:
    try:
        next_id = json.loads(data)["nextSnapshot"]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as e:
        raise CorruptFileError(f"{file} is not a consumer file: {e!r}; remove the consumer", path=file) from e
    if isinstance(next_id, bool) or not isinstance(next_id, int) or next_id not in _LONG:
        raise CorruptFileError(f"{file}: nextSnapshot is {next_id!r}; remove the consumer", path=file)
    return next_id
