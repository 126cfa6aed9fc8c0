"""What the tasks between route and write have in common: runs wait on a shelf, everything else goes straight on."""

from collections.abc import Iterator

import pyarrow as pa

from bucketline.state.store.write.run_buffer import RunShelf
from bucketline.streaming.tasks.wire import RUN, read_routed, routed_note


def shelve(batches: Iterator[pa.RecordBatch], shelf: RunShelf, *, note_key: int) -> Iterator[pa.RecordBatch]:
    """Puts the routed runs on the shelf; yields the notes among them, for the shard of `note_key`."""
    for batch in batches:
        for kind, run in read_routed(batch):
            if kind == RUN:
                shelf.add(run)
            else:
                yield routed_note(kind, shard_key=note_key, origin=run.origin, row_count=run.row_count, blob=run.blob)
