"""The key index of one share of the keys (the keys that one task handles). It maps each full primary key to its
partition and bucket, and is a RocksDB on local disk.

The index reflects one snapshot, which its label names. Entries, counts and label change together, in one ingested file,
so a crash leaves the index either before or after a change. If an index is damaged, belongs to another table, or is
ahead of its table, `ready` decides what to do.
"""

import json
import os
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import chain, groupby, islice, repeat
from operator import itemgetter
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
from rocksdict import Rdict

from bucketline.state.bucket.allocation import Int32s
from bucketline.state.bucket.cross_partition import KeyPlaces
from bucketline.state.bucket.key_entries import (
    LABEL_KEY,
    KeyEntries,
    key_order,
    partition_code_key,
    partition_key,
    read_places,
    rows_key,
    rows_prefix,
    stored_keys,
    stored_places,
)
from bucketline.state.determinism import SYSTEM_PAUSE
from bucketline.state.errors import IndexFault, IndexStateError
from bucketline.state.store.key_index.index_scope import IndexLabel, IndexScope
from bucketline.state.store.key_index.lookups import entries_from, is_dense, values_by_key, values_by_scan
from bucketline.state.store.key_index.rocks import (
    RocksSettings,
    ingest,
    rocks_errors,
    rocks_options,
    write_sst,
)
from bucketline.state.store.storage.errors import local_disk

FORMAT = 1
CHUNK_ROWS = 1 << 16
"""How many entries are converted to Python objects at a time."""

KeyChunk = tuple[Sequence[bytes], Sequence[bytes] | None]
"""Stored keys, in ascending order, and their values. If the values are None, the keys are removed."""

_DATABASE = "db"
_DAMAGED = "damaged"
_HOLDER = "holder"
_SETTLE_RUNS = 16
_SETTLE_WAIT_MS = 5
_SETTLE_WAITS = 1000


@dataclass(frozen=True, slots=True, eq=False)
class IndexChange:
    """A change of the key index: the keys to put, with the partition and bucket of each key; the keys to remove; and
    the new key count of each changed bucket, by partition code and bucket. A key is put or removed at most once, and
    not both.
    """

    puts: KeyEntries
    removes: pa.Array
    rows: Mapping[tuple[int, int], int] = field(default_factory=dict)


class KeyIndex:
    """An open index. An index cannot be opened a second time until it is closed. Only one thread may use it."""

    def __init__(self, directory: str, scope: IndexScope, database: Rdict, settings: RocksSettings) -> None:
        self.directory = directory
        self.scope = scope
        self._database = database
        self._options = rocks_options(settings)
        self._codes: dict[bytes, int] = {}
        self._partitions: dict[int, bytes] = {}
        self._stored_codes = self._next_code = 0
        self.label = IndexLabel()

    @staticmethod
    def open(directory: str, scope: IndexScope, settings: RocksSettings) -> "KeyIndex":
        """Opens the key index (which has the bucket of each key) in a directory, and returns the index.

        Raises IndexStateError if the index cannot be used. The attribute `fault` of the error says why: the index is
        missing, it is locked by a running process, it is damaged, or it is foreign. A foreign index was made for
        another table, another key, another share (group of keys) or another release of bucketline.
        """
        path = f"{directory}/{_DATABASE}"
        if not os.path.isfile(f"{path}/CURRENT"):
            fault = IndexFault.DAMAGED if os.path.isdir(directory) else IndexFault.MISSING
            raise IndexStateError(f"{directory}: there is no key index", fault=fault, path=directory)
        if os.path.exists(f"{directory}/{_DAMAGED}"):
            raise IndexStateError(
                f"{directory}: the key index was found to be damaged when it was read",
                fault=IndexFault.DAMAGED,
                path=directory,
            )
        try:
            with rocks_errors(directory):
                database = Rdict(path, rocks_options(settings))
        except IndexStateError as e:
            raise _with_holder(e, directory) from e
        index = KeyIndex(directory, scope, database, settings)
        try:
            index._read_label()
            with local_disk(directory):
                Path(f"{directory}/{_HOLDER}").write_text(f"{os.getpid()} {socket.gethostname()}")
        except BaseException:
            database.close()
            raise
        return index

    @staticmethod
    def create(directory: str, scope: IndexScope, settings: RocksSettings) -> "KeyIndex":
        """Creates an index in a directory that does not exist yet, and returns the index. The new index has no entries,
        and no label (the name of the snapshot that an index reflects).
        """
        with local_disk(directory):
            os.makedirs(directory)
        options = rocks_options(settings)
        options.create_if_missing(True)
        with rocks_errors(directory):
            database = Rdict(f"{directory}/{_DATABASE}", options)
        return KeyIndex(directory, scope, database, settings)

    def lookup(self, keys: pa.Array, *, alive_since: int = 0) -> KeyPlaces:
        """Returns the partitions and buckets of normalized keys, which must ascend. A key that was last written before
        `alive_since` (in seconds) has no partition and no bucket.
        """
        parts = []
        with self._errors():
            read = values_by_scan if is_dense(self._database, len(keys)) else values_by_key
            for start in range(0, len(keys), CHUNK_ROWS):
                values = read(self._database, stored_keys(keys.slice(start, CHUNK_ROWS)))
                parts.append(read_places(values, alive_since=alive_since))
        if not parts:
            return KeyPlaces(np.empty(0, np.int32), np.empty(0, np.int32))
        return KeyPlaces(np.concatenate([p.partitions for p in parts]), np.concatenate([p.buckets for p in parts]))

    def codes(self, partitions: Sequence[bytes]) -> Int32s:
        """Returns the code of each serialized partition. A partition without a code gets a new code, which is stored
        with the next change.
        """
        unknown = [p for p in dict.fromkeys(partitions) if p not in self._codes]
        with self._errors():
            stored = self._database.get([partition_code_key(p) for p in unknown]) if unknown else []
        for partition, value in zip(unknown, stored, strict=True):
            if value is None:
                self._note(self._next_code, partition)
                self._next_code += 1
            else:
                self._note(int.from_bytes(value, "big"), partition)
        return np.array([self._codes[p] for p in partitions], np.int32)

    def partitions(self, codes: Iterable[int]) -> dict[int, bytes]:
        """Returns the serialized partition for each of the codes, which are the numbers of partitions in this index.
        Raises IndexStateError for a code that the index does not have.
        """
        wanted = set(codes)
        missing = sorted(wanted - self._partitions.keys())
        with self._errors():
            stored = self._database.get([partition_key(c) for c in missing]) if missing else []
        for code, partition in zip(missing, stored, strict=True):
            if partition is None:
                raise IndexStateError(
                    f"{self.directory}: the key index has no partition with the code {code}",
                    fault=IndexFault.DAMAGED,
                    path=self.directory,
                )
            self._note(code, partition)
        return {code: self._partitions[code] for code in wanted}

    def rows(self, code: int) -> dict[int, int]:
        """Returns the number of keys in each bucket of a partition. `code` is the number that stands for the partition
        in the index (see `codes`).
        """
        prefix = rows_prefix(code)
        counts: dict[int, int] = {}
        with self._errors():
            for key, value in entries_from(self._database, prefix):
                if not key.startswith(prefix):
                    break
                counts[int.from_bytes(key[len(prefix) :], "big")] = int.from_bytes(value, "little")
        return counts

    def apply(self, change: IndexChange, label: IndexLabel) -> None:
        """Applies the change and the new label together, durably."""
        path = f"{self.directory}/next.sst"
        with self._errors():
            write_sst(path, self._options, chain(self._meta_chunks(change.rows, label), _key_chunks(change)))
            ingest(self._database, [path])
        self.label = label
        self._stored_codes = self._next_code

    def forget(self, keys: Sequence[bytes], rows: Mapping[tuple[int, int], int]) -> None:
        """Removes keys from the index; `keys` must ascend. `rows` has the new number of keys of each bucket. The
        label of the index (the snapshot that the index reflects) does not change.
        """
        path = f"{self.directory}/next.sst"
        with self._errors():
            write_sst(path, self._options, chain(self._meta_chunks(rows, self.label), [(keys, None)]))
            ingest(self._database, [path])
        self._stored_codes = self._next_code

    def load(self, paths: Sequence[str], rows: Mapping[tuple[int, int], int], label: IndexLabel) -> None:
        """Fills the index from files of sorted keys whose ranges do not overlap. Also stores the number of keys of each
        bucket (`rows`, by partition code and bucket), and the snapshot that the index reflects (`label`).
        """
        meta = f"{self.directory}/meta.sst"
        with self._errors():
            write_sst(meta, self._options, self._meta_chunks(rows, label))
            ingest(self._database, [meta, *paths])
        self.label = label
        self._stored_codes = self._next_code

    def items(self, start: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Returns up to `limit` stored keys with their values, from the key `start` on."""
        with self._errors():
            return list(islice(entries_from(self._database, start), limit))

    @property
    def database(self) -> Rdict:
        return self._database

    def close(self) -> None:
        """Closes the index. If there are many sorted runs, first waits a little for RocksDB to merge them."""
        self._settle()
        self._database.close()

    def __enter__(self) -> "KeyIndex":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """If reading shows that the index is damaged, records this, so that the index cannot be opened again."""
        try:
            with rocks_errors(self.directory):
                yield
        except IndexStateError as e:
            if e.fault is IndexFault.DAMAGED:
                with suppress(OSError):
                    Path(f"{self.directory}/{_DAMAGED}").touch()
            raise

    def _settle(self) -> None:
        """Waits a little while RocksDB merges its files, if there are many. Closing the database would end such a
        merge. So the files of an index that is only opened for short times would never be merged.
        """
        for _ in range(_SETTLE_WAITS):
            if len(self._database.live_files()) <= _SETTLE_RUNS or not self._is_merging():
                return
            SYSTEM_PAUSE.wait_ms(_SETTLE_WAIT_MS)

    def _is_merging(self) -> bool:
        pending, running = "rocksdb.compaction-pending", "rocksdb.num-running-compactions"
        return any(self._database.property_int_value(p) for p in (pending, running))

    def _note(self, code: int, partition: bytes) -> None:
        self._codes[partition], self._partitions[code] = code, partition

    def _meta_chunks(self, rows: Mapping[tuple[int, int], int], label: IndexLabel) -> Iterator[KeyChunk]:
        entries: dict[bytes, bytes | None] = {}
        for code in range(self._stored_codes, self._next_code):
            entries[partition_key(code)] = self._partitions[code]
            entries[partition_code_key(self._partitions[code])] = code.to_bytes(4, "big")
        for (code, bucket), count in rows.items():
            entries[rows_key(code, bucket)] = count.to_bytes(8, "little") if count > 0 else None
        said = {"format": FORMAT, "scope": asdict(self.scope), "label": asdict(label), "codes": self._next_code}
        entries[LABEL_KEY] = json.dumps(said, sort_keys=True).encode()
        yield from _alternating(sorted(entries.items()))

    def _read_label(self) -> None:
        with self._errors():
            stored = self._database.get(LABEL_KEY)
        if stored is None:
            raise IndexStateError(f"{self.directory}: the key index was never completed", fault=IndexFault.DAMAGED)
        try:
            said = json.loads(stored)
            if said["format"] != FORMAT or IndexScope(**said["scope"]) != self.scope:
                raise IndexStateError(
                    f"{self.directory}: the folder holds a key index of {said['scope']} in format {said['format']}, "
                    "which this job cannot use",
                    fault=IndexFault.FOREIGN,
                    path=self.directory,
                    found=said["scope"],
                )
            self.label = IndexLabel(**said["label"])
            self._stored_codes = self._next_code = int(said["codes"])
        except (ValueError, KeyError, TypeError) as e:
            raise IndexStateError(
                f"{self.directory}: the label of the key index cannot be read: {e!r}", fault=IndexFault.DAMAGED
            ) from e


def remove_index(directory: str) -> None:
    """Removes an index that is not open. A missing index is no error."""
    shutil.rmtree(directory, ignore_errors=True)


def _key_chunks(change: IndexChange) -> Iterator[KeyChunk]:
    """Yields what a change writes into the key index, in chunks: keys in ascending order, and the new place of each
    key. The place is None for a key that is removed.
    """
    puts = change.puts.take(key_order(change.puts.keys))
    if not len(change.removes):
        for start in range(0, len(puts), CHUNK_ROWS):
            chunk = puts.take(np.arange(start, min(start + CHUNK_ROWS, len(puts))))
            yield stored_keys(chunk.keys), stored_places(chunk)
        return
    # Puts and removes alternate. Most changes have few removes.
    keys = stored_keys(puts.keys) + stored_keys(change.removes)
    values = [*stored_places(puts), *repeat(None, len(change.removes))]
    pairs = sorted(zip(keys, values, strict=True), key=itemgetter(0))
    yield from _alternating(pairs)


def _alternating(pairs: Iterable[tuple[bytes, bytes | None]]) -> Iterator[KeyChunk]:
    for is_remove, run in groupby(pairs, key=lambda pair: pair[1] is None):
        entries = list(run)
        yield [k for k, _ in entries], None if is_remove else [v for _, v in entries if v is not None]


def _with_holder(error: IndexStateError, directory: str) -> IndexStateError:
    if error.fault is not IndexFault.LOCKED:
        return error
    holder = Path(f"{directory}/{_HOLDER}")
    named = "unknown"
    with suppress(OSError):
        named = holder.read_text()
    return IndexStateError(
        f"{directory}: the key index is open in another running process (pid and host: {named}). Two jobs must not "
        "share a local directory: stop the other job, or give each job its own 'local-directory'",
        fault=IndexFault.LOCKED,
        path=directory,
        holder=named,
    )
