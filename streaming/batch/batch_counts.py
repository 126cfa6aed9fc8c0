"""The counts of a batch that are stored in its snapshot, for readers who look at a table without its job."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from bucketline.state.commit.replay import DIGEST, writer_of
from bucketline.state.format.entries import CommitKind, Snapshot

INPUT_ROWS = "bucketline.input-rows"
REJECTED = "bucketline.rejected-records"
REJECTED_BEFORE = "bucketline.rejected-records.before"
BEHIND = "bucketline.behind-records"


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """The counts of a batch. A count that is not known is None.

    The counts are: rows written, records rejected in the batch, records rejected in earlier batches of the writer, and
    records that waited at the source after the batch.
    """

    input_rows: int | None = None
    rejected: int | None = None
    rejected_before: int | None = None
    behind: int | None = None

    @property
    def rejected_in_all(self) -> int:
        return (self.rejected or 0) + (self.rejected_before or 0)

    def properties(self) -> dict[str, str]:
        """Returns the known counts as properties of a snapshot."""
        named = {
            INPUT_ROWS: self.input_rows,
            REJECTED: self.rejected,
            REJECTED_BEFORE: self.rejected_before,
            BEHIND: self.behind,
        }
        return {key: str(count) for key, count in named.items() if count is not None}


def counts_in(properties: Mapping[str, str]) -> BatchCounts:
    """Returns the counts that a stream stores in the properties of a snapshot: the records of the batch, the rejected
    records, and the records that the stream is behind. A count that cannot be parsed is None.
    """
    return BatchCounts(*(_count(properties.get(key)) for key in (INPUT_ROWS, REJECTED, REJECTED_BEFORE, BEHIND)))


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """A batch of a stream as its snapshots show it. `stored_rows` counts the rows of its files, deletes included.
    `snapshot_ids` are ascending: first the snapshot of the rows, then the snapshot of the batch's compaction.
    """

    writer: str
    batch_id: int
    snapshot_ids: tuple[int, ...]
    time_ms: int
    stored_rows: int | None
    counts: BatchCounts


def last_batches(snapshots: Iterable[Snapshot], most: int) -> list[WrittenBatch]:
    """Returns the newest batches that streams have written, with their counts, newest first, at most `most`.
    `snapshots` must come newest first.
    """
    return [batch for batch, _ in zip(_batches(snapshots), range(most), strict=False)]


def _batches(snapshots: Iterable[Snapshot]) -> Iterator[WrittenBatch]:
    same_batch: list[Snapshot] = []
    for snapshot in snapshots:
        if DIGEST not in snapshot.properties:
            continue
        if same_batch and _name(same_batch[0]) != _name(snapshot):
            yield _batch(same_batch)
            same_batch = []
        same_batch.append(snapshot)
    if same_batch:
        yield _batch(same_batch)


def _name(snapshot: Snapshot) -> tuple[str, int]:
    return writer_of(snapshot.commit_user), snapshot.commit_identifier


def _batch(newest_first: list[Snapshot]) -> WrittenBatch:
    appended = [s for s in newest_first if s.commit_kind is CommitKind.APPEND]
    writer, batch_id = _name(newest_first[0])
    shown = appended[0] if appended else newest_first[-1]
    return WrittenBatch(
        writer=writer,
        batch_id=batch_id,
        snapshot_ids=tuple(s.id for s in reversed(newest_first)),
        time_ms=newest_first[0].time_ms,
        stored_rows=appended[0].delta_record_count if appended else None,
        counts=counts_in(shown.properties),
    )


def _count(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
