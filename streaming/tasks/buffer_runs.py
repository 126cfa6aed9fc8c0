"""What the tasks between route and write have in common: runs wait in a buffer, everything else goes straight on."""

from collections.abc import Iterator

import pyarrow as pa

from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.streaming.tasks.wire import RUN, read_routed, routed_note


def buffer_runs(batches: Iterator[pa.RecordBatch], buffer: RunBuffer, *, note_key: int) -> Iterator[pa.RecordBatch]:
    """Puts the routed runs into the buffer; yields the notes among them, for the shard of `note_key`."""
    for batch in batches:
        for kind, run in read_routed(batch):
            if kind == RUN:
                buffer.add(run)
            else:
                yield routed_note(kind, shard_key=note_key, origin=run.origin, row_count=run.row_count, blob=run.blob)
