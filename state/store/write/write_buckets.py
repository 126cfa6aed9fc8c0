"""All runs of a buffer → commit messages: new keys get their buckets first, then bucket after bucket is written."""

from collections.abc import Callable, Iterator, Mapping

from bucketline.state.bucket.allocation import Int32s
from bucketline.state.commit.message import CommitMessage
from bucketline.state.store.catalog.live_files import BucketId
from bucketline.state.store.write.bucket_writer import BucketState, BucketWrite, write_bucket
from bucketline.state.store.write.cross_write import place_runs
from bucketline.state.store.write.dynamic_write import AssignWrite, assign_runs
from bucketline.state.store.write.grouping import share_of_group
from bucketline.state.store.write.new_keys import allocate_new_keys
from bucketline.state.store.write.postpone_write import write_postponed
from bucketline.state.store.write.run_buffer import RunBuffer


def write_buckets(
    write: BucketWrite,
    buffer: RunBuffer,
    states: Mapping[BucketId, BucketState],
    noted: Callable[[str], None] = lambda token: None,
    *,
    assign: AssignWrite | None = None,
    new_hashes: Mapping[BucketId, Int32s] | None = None,
) -> Iterator[CommitMessage]:
    """The message of each bucket that has runs, as it is written; the buffer is empty afterwards.

    `noted` is given the tokens of key-index notes, which the snapshot has to carry. With `assign` shares hold known
    keys as well; `new_hashes` are those of runs that got their buckets elsewhere.
    """
    hashes: dict[BucketId, Int32s] = dict(new_hashes or {})

    def grown(new: tuple[bytes, int, Int32s]) -> None:
        hashes[new[0], new[1]] = new[2]

    for partition, group in buffer.buckets():
        share = share_of_group(group)
        if share is None:
            continue
        if write.postponed_user is not None:
            since = write.postponed_since.get(partition)
            yield write_postponed(write.access, write.postponed_user, share, buffer.take((partition, group)), since)
            continue
        if write.cross is not None:
            for run in place_runs(write.cross, share, buffer.take((partition, group)), noted=noted):
                buffer.add(run)
            continue
        if assign is not None:
            for run in assign_runs(assign, share, buffer.take((partition, group)), grown):
                buffer.add(run)
            continue
        assert write.dynamic is not None, "groups of new keys are for dynamic buckets"
        rebucketed = allocate_new_keys(
            write.dynamic, write.access.schema, share, buffer.take((partition, group)), buffer.add
        )
        hashes |= {(partition, bucket): found for bucket, found in rebucketed.items()}
    for bucket_id in buffer.buckets():
        state = states.get(bucket_id, BucketState())
        yield write_bucket(write, bucket_id, state, buffer.take(bucket_id), hashes.get(bucket_id))
