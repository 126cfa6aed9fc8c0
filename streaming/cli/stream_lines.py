"""The lines of `status` about the streams that write a table: their last batches, rejected records and lag.

Everything is read from the snapshots, so no job needs to run. Expired snapshots are not shown.
"""

from itertools import islice

import pyarrow as pa

from bucketline.conf.wording import age_text, counted
from bucketline.state.commit.replay import MARKER_TAG
from bucketline.state.determinism import SYSTEM_CLOCK
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.tags import Tags
from bucketline.streaming.batch.batch_counts import WrittenBatch, last_batches
from bucketline.streaming.cli.texts import printable

SHOWN_BATCHES = 5
_LEAST_WALK = 200
BATCHES_SCHEMA = pa.schema(
    [
        ("writer", pa.string()),
        ("batch", pa.int64()),
        ("committed", pa.timestamp("ms", "UTC")),
        ("input_rows", pa.int64()),
        ("stored_rows", pa.int64()),
        ("rejected_records", pa.int64()),
        ("rejected_in_all", pa.int64()),
        ("behind_records", pa.int64()),
        ("snapshots", pa.string()),
    ]
)


def batches_of(table: TableHandle, most: int) -> list[WrittenBatch]:
    """Returns the newest batches that streams have written, newest first.

    The batches are read from a bounded number of the newest snapshots, and from the tags of the writers. A writer's tag
    keeps the last batch of the writer after the snapshot of this batch has expired.
    """
    store = table.snapshot_store
    newest = store.latest_id()
    walked = islice(store.newest_first(newest), max(_LEAST_WALK, 4 * most)) if newest is not None else ()
    kept = (t.snapshot for t in Tags(table.io, table.metadata_path).list() if t.name.startswith(MARKER_TAG))
    snapshots = {s.id: s for s in (*kept, *walked)}
    return last_batches((snapshots[i] for i in sorted(snapshots, reverse=True)), most)


def batches_table(batches: list[WrittenBatch]) -> pa.Table:
    """Returns a table with a row for each batch, newest first."""
    rows = [
        {
            "writer": b.writer,
            "batch": b.batch_id,
            "committed": b.time_ms,
            "input_rows": b.counts.input_rows,
            "stored_rows": b.stored_rows,
            "rejected_records": b.counts.rejected,
            "rejected_in_all": b.counts.rejected_in_all,
            "behind_records": b.counts.behind,
            "snapshots": _ids(b),
        }
        for b in batches
    ]
    return pa.Table.from_pylist(rows, schema=BATCHES_SCHEMA)


def stream_lines(batches: list[WrittenBatch]) -> list[str]:
    """Returns lines of text about the streams that have written these batches. For each stream, the first line shows
    the lag and the number of rejected records. Then comes a line for each batch of the stream, newest batch first.
    """
    lines = []
    for writer in dict.fromkeys(b.writer for b in batches):
        own = [b for b in batches if b.writer == writer]
        counts = own[0].counts
        behind = (
            "lag not known" if counts.behind is None else f"{counted(counts.behind, 'record')} behind at its last batch"
        )
        rejected = (
            f"{counted(counts.rejected_in_all, 'record')} rejected since it began" if counts.rejected_in_all else None
        )
        lines.append(f"stream {printable(writer)}: {', '.join(part for part in (behind, rejected) if part)}")
        lines += [f"  {_batch_line(b)}" for b in own]
    return lines


def _batch_line(batch: WrittenBatch) -> str:
    counts, age = batch.counts, age_text((SYSTEM_CLOCK.now_ms() - batch.time_ms) // 1000)
    parts = [
        f"batch {batch.batch_id}, {age} ago",
        None if counts.input_rows is None else f"{counted(counts.input_rows, 'row')} in",
        None if batch.stored_rows is None else f"{batch.stored_rows:,} stored",
        f"{counts.rejected:,} rejected" if counts.rejected else None,
        None if counts.behind is None else f"{counts.behind:,} behind",
        f"snapshot {_ids(batch)}",
    ]
    return ", ".join(part for part in parts if part is not None)


def _ids(batch: WrittenBatch) -> str:
    return "-".join(map(str, dict.fromkeys((batch.snapshot_ids[0], batch.snapshot_ids[-1]))))
