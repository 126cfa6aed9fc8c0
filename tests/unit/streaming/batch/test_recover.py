"""Which batches are written, skipped and refused."""

from dataclasses import replace

import pytest

from bucketline.state.format.entries import CommitKind, Snapshot
from bucketline.streaming.batch.identity import BatchIdentity, batch_digest
from bucketline.streaming.batch.recover import (
    CLUSTER,
    DIGEST,
    END_OFFSETS,
    SOURCE,
    CheckpointMismatchError,
    SkipBatch,
    UserHistory,
    WriteBatch,
    decide,
)


def _batch(batch_id: int, digest: str = "d") -> BatchIdentity:
    return BatchIdentity("q", batch_id, None, "[]", digest)


def _snapshot(snapshot_id: int, batch_id: int, digest: str | None = "d", kind: str = "APPEND") -> Snapshot:
    return Snapshot(
        id=snapshot_id,
        schema_id=0,
        base_manifest_list="b",
        delta_manifest_list="d",
        commit_user="q",
        commit_identifier=batch_id,
        commit_kind=CommitKind(kind),
        time_ms=0,
        total_record_count=0,
        delta_record_count=0,
        properties={} if digest is None else {DIGEST: digest},
    )


def _history(*commits: Snapshot, marker: Snapshot | None = None, complete: bool = True) -> UserHistory:
    return UserHistory(tuple(reversed(commits)), marker, complete)


def test_the_first_batch_of_a_new_query_is_written() -> None:
    assert decide(_batch(0), _history(), allow_reprocess=False) == WriteBatch()


def test_the_next_batch_is_written() -> None:
    assert decide(_batch(2), _history(_snapshot(1, 0), _snapshot(2, 1)), allow_reprocess=False) == WriteBatch()


def test_a_batch_in_the_table_with_the_same_input_is_skipped() -> None:
    assert decide(_batch(1), _history(_snapshot(1, 0), _snapshot(2, 1)), allow_reprocess=False) == SkipBatch(2, False)


def test_a_skipped_batch_knows_whether_its_compaction_was_committed() -> None:
    history = _history(_snapshot(1, 0), _snapshot(2, 0, kind="COMPACT"))
    assert decide(_batch(0), history, allow_reprocess=False) == SkipBatch(2, True)


def test_the_marker_proves_a_batch_whose_snapshots_have_expired() -> None:
    assert decide(_batch(3), _history(marker=_snapshot(9, 3), complete=False), allow_reprocess=False) == SkipBatch(
        9, False
    )


@pytest.mark.parametrize(
    ("batch", "history"),
    [
        (_batch(1, "other"), _history(_snapshot(1, 0), _snapshot(2, 1))),
        (_batch(1), _history(_snapshot(1, 0), _snapshot(2, 1, digest=None))),
        (_batch(0), _history(_snapshot(2, 1))),
        (_batch(5), _history()),
        (_batch(5), _history(_snapshot(1, 2))),
        (_batch(5), _history(marker=_snapshot(4, 4), complete=False)),
    ],
    ids=["other input", "no offsets stored", "rewound", "no trace", "gap", "cannot be proven"],
)
def test_a_story_that_does_not_fit_is_refused_with_remedies(batch: BatchIdentity, history: UserHistory) -> None:
    with pytest.raises(CheckpointMismatchError, match="--allow-reprocess"):
        decide(batch, history, allow_reprocess=False)
    assert decide(batch, history, allow_reprocess=True) == WriteBatch()


def test_a_digest_covers_both_ends_and_the_names_of_files() -> None:
    kafka = batch_digest([{"t": {"0": 1}}], [{"t": {"0": 2}}], [None])
    assert kafka != batch_digest([{"t": {"0": 0}}], [{"t": {"0": 2}}], [None])
    assert kafka != batch_digest([{"t": {"0": 1}}], [{"t": {"0": 3}}], [None])
    files = batch_digest(None, [{"logOffset": 0}], [["b", "a"]])
    assert files == batch_digest([{"logOffset": 4}], [{"logOffset": 5}], [["a", "b"]])


@pytest.mark.parametrize(("cluster", "refused"), [("one", True), ("two", False), (None, False)])
def test_the_id_of_a_cluster_counts_before_the_names_of_its_servers(cluster: str | None, refused: bool) -> None:
    """A new query that reads a topic again is refused also where its servers go by another name."""
    offsets = '[{"t": {"0": 5}}]'
    known = {CLUSTER: "one", SOURCE: "kafka://old:9092", END_OFFSETS: offsets}
    other = replace(_snapshot(1, 0), commit_user="other", properties=known)
    batch = BatchIdentity("q", 0, None, offsets, "d", source="kafka://new:9092", cluster=cluster)
    history = UserHistory((), None, True, (other,))
    if refused:
        with pytest.raises(CheckpointMismatchError, match="has already written topic 't'"):
            decide(batch, history, allow_reprocess=False)
    else:
        assert decide(batch, history, allow_reprocess=False) == WriteBatch()
