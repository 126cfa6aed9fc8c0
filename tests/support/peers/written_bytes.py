"""Batches of keys, and the bytes of data files that a table has got for them."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from bucketline.state.format.data_file import FileSource
from bucketline.state.store.table.table import handle_of, open_table

COLUMNS = {"k": "BIGINT NOT NULL", "v": "BIGINT", "s": "STRING"}
KEPT = {"snapshot.num-retained.min": "100000", "snapshot.num-retained.max": "100000"}
"""Options under which every snapshot stays, so that all files that were ever written are known."""

PATTERNS = ("ascending", "uniform", "skewed")


def batch_of(pattern: str, turn: int, batches: int, rows: int) -> pa.Table:
    """The rows of a batch, by key: new keys above all others, any of the keys, or mostly the same few."""
    draw = np.random.default_rng([turn, PATTERNS.index(pattern)])
    if pattern == "ascending":
        keys = np.arange(turn * rows, (turn + 1) * rows)
    elif pattern == "uniform":
        keys = draw.integers(0, batches * rows // 4, rows)
    else:
        keys = np.minimum(draw.zipf(1.3, rows), 1_000_000)
    keys = np.unique(keys)
    values = draw.integers(0, 1 << 40, len(keys))
    texts = [f"text {v % 1000}" for v in values.tolist()]
    return pa.table({"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int64()), "s": texts})


def written_bytes(path: Path) -> dict[FileSource, int]:
    """The bytes of all data files that writes and compactions have made, those included that are gone since."""
    table = handle_of(open_table(str(path)))
    newest = table.snapshot_store.latest_id() or 0
    known: set[str] = set()
    found = dict.fromkeys(FileSource, 0)
    for number in range(1, newest + 1):
        snapshot = table.snapshot_store.get(number)
        assert snapshot is not None
        for entry in table.manifests.delta_entries(snapshot):
            # A file that moves up to another level is added again.
            if entry.file.file_name not in known and entry.file.file_source is not None:
                known.add(entry.file.file_name)
                found[entry.file.file_source] += entry.file.file_size
    return found
