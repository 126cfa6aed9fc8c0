"""Reads the outcome of one Spark action (files and counts) from the results of its tasks."""

from collections.abc import Iterable

from bucketline.state.commit.message import CommitMessage, decode_messages
from bucketline.state.lsm.merge.feeds import MixedKey
from bucketline.state.store.commit.discard import discarded_on_error
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.engine.engine import GivenBack, Outcome
from bucketline.state.types.schema_need import decode_need
from bucketline.streaming.decode.schema_needs import joined_needs
from bucketline.streaming.decode.seen import decode_seen, joined_seen
from bucketline.streaming.tasks.parquet_fit import UnfitFileError
from bucketline.streaming.tasks.wire import (
    GIVEN_BACK,
    MESSAGES,
    MIXED,
    NEEDS,
    NOTE,
    REJECTS,
    REPORT,
    SEEN,
    STATS,
    UNFIT,
    TaskResult,
    read_stats,
)

_KINDS = (MESSAGES, REJECTS, NOTE, STATS, NEEDS, REPORT, GIVEN_BACK, UNFIT, SEEN, MIXED)


def read_outcome(
    results: Iterable[TaskResult], access: BucketAccess, retired: tuple[CommitMessage, ...] = ()
) -> Outcome:
    """Takes everything that the tasks of a job returned, and returns one Outcome: for example all commit messages, bad
    records and counts. `retired` are commit messages that the driver adds to the messages of the tasks.

    Raises GivenBack if a task says that the work was cancelled, and UnfitFileError if a task found a file that only
    Spark can read. The files that tasks have written are removed first.
    """
    by_kind: dict[str, list[bytes]] = {kind: [] for kind in _KINDS}
    for result in results:
        by_kind[result.kind].append(result.payload)
    with discarded_on_error(access) as messages:
        messages += [m for payload in by_kind[MESSAGES] for m in decode_messages(payload)]
        if by_kind[GIVEN_BACK]:
            raise GivenBack(by_kind[GIVEN_BACK][0].decode())
        if by_kind[UNFIT]:
            raise UnfitFileError.from_bytes(by_kind[UNFIT][0])
    seen = joined_seen(map(decode_seen, by_kind[SEEN]))
    return Outcome(
        messages=(*messages, *retired),
        rejects=tuple(by_kind[REJECTS]),
        stats=tuple(read_stats(payload) for payload in by_kind[STATS]),
        notes=tuple(payload.decode() for payload in by_kind[NOTE]),
        need=joined_needs(map(decode_need, by_kind[NEEDS])),
        reports=tuple(by_kind[REPORT]),
        skipped_records=tuple(sorted((kind.value, count) for kind, count in seen.skipped.items())),
        source_tables=tuple(sorted(seen.tables)),
        unexpected=tuple(sorted(seen.unexpected.items())),
        mixed=tuple(sorted(map(MixedKey.from_bytes, by_kind[MIXED]))),
        truncated=seen.truncated,
        moves=seen.moves,
    )
