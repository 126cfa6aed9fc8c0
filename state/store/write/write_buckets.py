"""Turns all sealed runs (sorted, packed rows) of a buffer into commit messages. First finds buckets for rows without
a bucket, and then writes the files of one bucket after the other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from bucketline.state.commit.live_files import BucketId
from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import World
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.merge.feeds import MixedKey
from bucketline.state.store.write.bucket_threads import written_buckets
from bucketline.state.store.write.grouping import share_of_group
from bucketline.state.store.write.placing import BucketNews, SnapshotNote
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.sealed_runs import SealedRun
from bucketline.state.store.write.stages import BucketResult, WriteStage


def write_buckets(
    stage: WriteStage, buffer: RunBuffer, news: Mapping[BucketId, bytes] | None = None, *, threads: int = 1
) -> Iterator[CommitMessage | SnapshotNote | MixedKey]:
    """Writes the buckets whose sealed runs (sorted, packed rows) are in `buffer`. Yields the commit message of each
    bucket that has runs, in the order of the buckets. If the task still has to choose the buckets of rows, first yields
    the SnapshotNotes and MixedKeys that `Placing.place` yields. The buffer is empty afterwards.

    `news` has for each bucket the payload of the message (`BucketNews`) that another task has sent for the bucket. Up
    to `threads` buckets are written at the same time.
    """
    known = dict(news or {})
    for partition, group in buffer.buckets():
        share = share_of_group(group)
        if share is None:
            continue
        assert stage.groups is not None, "rows came without a bucket"
        for placed in stage.groups.place(share, buffer.take((partition, group))):
            match placed:
                case SealedRun():
                    buffer.add(placed)
                case BucketNews():
                    known[placed.partition, placed.bucket] = placed.payload
                case _:
                    yield placed

    def with_news(message: CommitMessage, world: World) -> CommitMessage:
        payload = known.get((message.partition, message.bucket))
        if payload is None:
            return message
        assert stage.groups is not None, "news are for those who made them"
        return stage.groups.with_news(message, payload, world)

    with closing(written_buckets(stage.write, stage.states, buffer, threads, with_news)) as written:
        for message in written:
            yield as_result(message, stage)


def as_result(message: CommitMessage, stage: WriteStage) -> CommitMessage:
    """Returns the commit message of a written bucket in the form that `stage.result` names: unchanged, with writing and
    compacting joined to one change, or with all remaining files as new files.
    """
    if stage.result is BucketResult.AS_WRITTEN:
        return message
    change = _as_one_change(message, stage.write.access.delete_own)
    if stage.result is BucketResult.ONE_CHANGE:
        return change
    return replace(change, new_files=change.compact_after, compact_before=(), compact_after=())


def _as_one_change(message: CommitMessage, delete: Callable[[Sequence[DataFileMeta], BucketId], None]) -> CommitMessage:
    """Returns a message that names only the final files of the bucket. New files that the compaction in the same
    message has already replaced are deleted.

    New files that the compaction only moved to a higher level count as new files of that level. A changelog of the
    input becomes part of the compaction's changelog.
    """
    new = {f.file_name for f in message.new_files}
    after = {f.file_name for f in message.compact_after}
    gone = [f for f in message.compact_before if f.file_name in new and f.file_name not in after]
    consumed = {f.file_name for f in message.compact_before}
    delete(gone, (message.partition, message.bucket))
    files = (*(f for f in message.new_files if f.file_name not in consumed), *message.compact_after)
    return replace(
        message,
        new_files=(),
        changelog_files=(),
        compact_changelog=(*message.changelog_files, *message.compact_changelog),
        compact_before=tuple(f for f in message.compact_before if f.file_name not in new),
        compact_after=files,
    )
