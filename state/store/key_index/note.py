"""A note is a file beside a key index. It holds the changes that a batch makes to the keys of the index. The index
itself is never changed before the batch is committed.

The note has a token, and the batch's snapshot has the token among its properties. If a later snapshot of the table has
the token of the note, the batch was committed: the next batch then applies the note to the index, and need not read the
files that the commit has added. Otherwise the note is ignored, and the files are read. A note records the label of its
index, and is valid only while the index has this label.
"""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from bucketline.state.bucket.cross_partition import NOWHERE, KeyEffect
from bucketline.state.bucket.key_entries import NOTE_PROPERTY, KeyEntries
from bucketline.state.format.entries import CommitKind, Snapshot
from bucketline.state.store.key_index.index_scope import IndexLabel
from bucketline.state.store.key_index.key_index import IndexChange, KeyIndex
from bucketline.state.types.buffers import one_array

_FILE = "note.arrow"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Note:
    """The changes that one batch makes to a key index, which has the bucket of each key.

    - `token` is also in the snapshot of the batch, and `base` is the label of the index that the note changes.
    - `keys` are the changed keys. The arrays `numbers`, `buckets` and `seconds` have one value for each key: its
      partition (as a position in `partitions`), its bucket, and the time at which it was written. NOWHERE instead of a
      partition means that the key is removed.
    - `gains` says for each partition and bucket how many keys it gains or loses.
    """

    token: str
    base: IndexLabel
    keys: pa.Array
    numbers: np.ndarray
    buckets: np.ndarray
    seconds: np.ndarray
    partitions: tuple[bytes, ...]
    gains: Mapping[tuple[int, int], int]

    def is_of(self, snapshot: Snapshot, label: IndexLabel) -> bool:
        """Returns True if this note (the changes of keys in one batch) was written for the given snapshot, and for an
        index with the given label.
        """
        tokens = snapshot.properties.get(NOTE_PROPERTY, "").split(",")
        return snapshot.commit_kind is CommitKind.APPEND and self.base == label and self.token in tokens

    def proves(self, snapshot: Snapshot, label: IndexLabel) -> bool:
        """The note records how one batch has changed the key index. Returns True if the note has all changes of the
        table after the snapshot of `label` (the snapshot that the index reflects), up to the snapshot `snapshot`. Then
        the index can be brought up to date, although the snapshots in between cannot be read.

        The note has all changes if its batch was planned on the label's snapshot and has published the given snapshot,
        because no other writer may commit in between. The batch may have published two snapshots. Then the second
        snapshot is its own compaction, and has the next id.
        """
        tokens = snapshot.properties.get(NOTE_PROPERTY, "").split(",")
        if self.base != label or self.token not in tokens:
            return False
        follows = snapshot.commit_kind is CommitKind.COMPACT and snapshot.id == label.snapshot_id + 2
        return follows or snapshot.commit_kind is CommitKind.APPEND

    def change(self, index: KeyIndex) -> IndexChange:
        """Returns the change in the form that `KeyIndex.apply` takes."""
        codes = index.codes(self.partitions)
        put = np.flatnonzero(self.numbers != NOWHERE)
        puts = KeyEntries(self.keys.take(put), codes[self.numbers[put]], self.buckets[put], self.seconds[put])
        rows = {code: index.rows(code) for code in {int(codes[n]) for n, _ in self.gains}}
        counts = {
            (int(codes[n]), bucket): max(0, rows[int(codes[n])].get(bucket, 0) + gain)
            for (n, bucket), gain in self.gains.items()
        }
        return IndexChange(puts, self.keys.take(np.flatnonzero(self.numbers == NOWHERE)), counts)


def write_note(index: KeyIndex, keys: pa.Array, effect: KeyEffect, *, seconds: int, token: str) -> bool:
    """Writes the note of a batch beside an open index, and replaces the previous note. `keys` are the batch's distinct
    keys, in ascending order; each attempt of a batch has a new `token`. Returns False if the note cannot be written;
    the next batch then reads the files.
    """
    puts, removes = effect.puts, effect.removes
    codes = sorted({*effect.places.partitions[puts].tolist(), *(code for code, _ in effect.gains)})
    names = index.partitions(codes)
    number_of = np.full(max(codes, default=0) + 1, NOWHERE, np.int32)
    number_of[codes] = np.arange(len(codes))
    said = {
        "token": token,
        "base": asdict(index.label),
        "partitions": [names[c].hex() for c in codes],
        "gains": [[int(number_of[c]), b, gain] for (c, b), gain in effect.gains.items()],
    }
    nowhere = np.full(len(removes), NOWHERE, np.int32)
    columns = {
        "key": keys.take(np.concatenate([puts, removes])),
        "partition": np.concatenate([number_of[effect.places.partitions[puts]], nowhere]),
        "bucket": np.concatenate([effect.places.buckets[puts], np.zeros(len(removes), np.int32)]),
        "seconds": np.full(len(puts) + len(removes), seconds, np.uint32),
    }
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    batch = batch.replace_schema_metadata({"note": json.dumps(said)})
    path = f"{index.directory}/{_FILE}"
    try:
        with pa.OSFile(f"{path}.new", "wb") as out, pa.ipc.new_file(out, batch.schema) as writer:
            writer.write_batch(batch)
        os.replace(f"{path}.new", path)
    except OSError as e:
        _LOG.warning("%s: the note for the next batch could not be written: %s", index.directory, e)
        Path(f"{path}.new").unlink(missing_ok=True)
        return False
    return True


def read_note(index: KeyIndex) -> Note | None:
    """Returns the note beside an open key index; None if there is no note, or if it cannot be read. The note has the
    changes that a batch makes to the index, so that the next batch can apply them.
    """
    path = Path(f"{index.directory}/{_FILE}")
    if not path.is_file():
        return None
    try:
        with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as reader:
            table = reader.read_all().combine_chunks()
        said = json.loads(table.schema.metadata[b"note"])
        key, partition, bucket, seconds = (one_array(table.column(i)) for i in range(4))
        return Note(
            token=said["token"],
            base=IndexLabel(**said["base"]),
            keys=key,
            numbers=np.asarray(partition),
            buckets=np.asarray(bucket),
            seconds=np.asarray(seconds),
            partitions=tuple(bytes.fromhex(p) for p in said["partitions"]),
            gains={(n, b): gain for n, b, gain in said["gains"]},
        )
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
        return None
