"""Which batches are written, skipped and refused."""

from dataclasses import replace

import pytest

from bucketline.state.commit.replay import DIGEST
from bucketline.state.format.entries import CommitKind, Snapshot
from bucketline.streaming.batch.identity import BatchIdentity, batch_digest, new_partitions
from bucketline.streaming.batch.inputs.topic_ids import CLUSTER, TOPIC_IDS
from bucketline.streaming.batch.recover import (
    END_OFFSETS,
    SOURCE,
    START_OFFSETS,
    CheckpointMismatchError,
    SkipBatch,
    TopicCreatedAgainError,
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


def _of_others(*ends: str) -> tuple[Snapshot, ...]:
    """Snapshots of other queries, each newer than the one before."""
    return tuple(
        replace(_snapshot(i, 0), commit_user=f"other-{i}", properties={END_OFFSETS: end}) for i, end in enumerate(ends)
    )


@pytest.mark.parametrize(
    ("start", "end", "others", "refused"),
    [
        ('[{"a": {"0": 5}}]', '[{"a": {"0": 9}}]', ['[{"a": {"0": 5}, "b": {"0": 7}}]'], None),
        ('[{"a": {"1": 0}}]', '[{"a": {"1": 9}}]', ['[{"a": {"0": 5}}]'], None),
        ('[{"a": {"0": 4}}]', '[{"a": {"0": 9}}]', ['[{"a": {"0": 5}}]'], "a"),
        ('[{"a": {"0": 0}}]', '[{"a": {"0": 9}}]', ['[{"a": {"0": 0}}]'], None),
        (None, '[{"a": {"0": 9}}]', ['[{"a": {"0": 5}}]'], "a"),
        ('[{"a": {"0": 3}}]', '[{"a": {"0": 9}}]', ['[{"a": {"0": 5}}]', '[{"a": {"0": 3}}]'], None),
        ('[{"a": {"0": 5}}]', '[{"a": {"0": 9}}]', ['[{"a": {"0": 8}}]', '[{"b": {"0": 3}}]'], "a"),
    ],
    ids=[
        "left out",
        "other partition",
        "behind",
        "nothing read",
        "start unknown",
        "newest counts",
        "newest of a topic",
    ],
)
def test_a_new_query_reads_what_no_other_has_read(
    start: str | None, end: str, others: list[str], refused: str | None
) -> None:
    batch = BatchIdentity("q", 0, start, end, "d")
    history = UserHistory((), None, True, _of_others(*others))
    if refused is None:
        assert decide(batch, history, allow_reprocess=False) == WriteBatch()
    else:
        with pytest.raises(CheckpointMismatchError, match=f"new query, but query .* written topic '{refused}'"):
            decide(batch, history, allow_reprocess=False)
        assert decide(batch, history, allow_reprocess=True) == WriteBatch()


@pytest.mark.parametrize(("other", "refused"), [('[{"a": {"0": 50}}]', False), ('[{"b": {"0": 1}}]', True)])
def test_a_query_does_not_begin_in_its_midst_to_read_what_another_has_read(other: str, refused: bool) -> None:
    """A topic that is left out and read again, on the same checkpoint: Spark begins it at its first record."""
    batch = BatchIdentity("q", 1, '[{"a": {"0": 5}}]', '[{"a": {"0": 9}, "b": {"0": 3}}]', "d")
    history = UserHistory((_snapshot(3, 0),), None, True, _of_others(other))
    if refused:
        with pytest.raises(CheckpointMismatchError, match="begins to read topic 'b', but query other-0 has already"):
            decide(batch, history, allow_reprocess=False)
    else:
        assert decide(batch, history, allow_reprocess=False) == WriteBatch()


QUERY = "e2f1d0c9-1111-4222-8333-444455556666"


@pytest.mark.parametrize("prefix", ["", "nightly_"])
def test_sinks_of_one_query_write_the_same_records_each(prefix: str) -> None:
    """A function of foreachBatch that calls two sinks of one table, each with a `sink_id`."""
    [first] = _of_others('[{"a": {"0": 9, "1": 3}}]')
    first = replace(first, commit_user=f"{prefix}{QUERY}-one")
    begins = BatchIdentity(QUERY, 0, '[{"a": {"0": 0, "1": 0}}]', '[{"a": {"0": 9, "1": 3}}]', "d")
    assert decide(begins, UserHistory((), None, True, (first,)), allow_reprocess=False) == WriteBatch()
    grows = replace(begins, batch_id=1, start_offsets='[{"a": {"0": 5}}]')
    assert decide(grows, replace(_history(_snapshot(3, 0)), others=(first,)), allow_reprocess=False) == WriteBatch()


@pytest.mark.parametrize("position", ['""', '"TRIM_HORIZON"', "null", "[1]", '{"at": 1}'])
def test_nested_offsets_of_other_sources_than_kafka_are_not_looked_into(position: str) -> None:
    """As those of Kinesis, or of a source that is written in Python."""
    offsets = f'[{{"shard-0": {{"position": {position}}}}}]'
    other = replace(_snapshot(1, 0), commit_user="other", properties={END_OFFSETS: offsets})
    for history in (UserHistory((), None, True, (other,)), _history(_snapshot(2, 2))):
        batch = BatchIdentity("q", 3 if history.commits else 0, offsets, offsets, "d", cluster="one")
        assert decide(batch, history, allow_reprocess=False) == WriteBatch()
        assert not new_partitions(batch)


@pytest.mark.parametrize(("reached", "refused"), [(500, False), (5, True)])
def test_a_topic_that_was_created_again_may_gain_the_partitions_that_it_had(reached: int, refused: bool) -> None:
    """The query that has read the old topic was further on."""
    batch = BatchIdentity("q", 1, '[{"a": {"0": 5}}]', '[{"a": {"0": 9, "1": 3}}]', "d")
    history = UserHistory((_snapshot(3, 0),), None, True, _of_others(f'[{{"a": {{"0": {reached}, "1": 300}}}}]'))
    if refused:
        with pytest.raises(CheckpointMismatchError, match="begins to read topic 'a'"):
            decide(batch, history, allow_reprocess=False)
    else:
        assert decide(batch, history, allow_reprocess=False) == WriteBatch()


def _at(start: int, end: int) -> dict[str, str]:
    return {START_OFFSETS: f'[{{"a": {{"0": {start}}}}}]', END_OFFSETS: f'[{{"a": {{"0": {end}}}}}]'}


@pytest.mark.parametrize(
    ("since", "cluster", "refused"),
    [
        ((10, 15), "one", "offsets 10 up to 15"),
        ((5, 12), "one", "offsets 5 up to 12"),
        ((5, 10), "one", "offsets 5 up to 10"),
        ((0, 5), "one", None),
        ((20, 30), "one", "offsets 20 up to 30"),
        ((10, 15), "two", None),
        ((10, 15), None, None),
    ],
    ids=["this batch", "both", "the last batch", "before", "a later batch", "other cluster", "cluster unknown"],
)
def test_a_query_stops_where_another_writes_the_same_records(
    since: tuple[int, int], cluster: str | None, refused: str | None
) -> None:
    """A job that was begun again while the old one still runs; a branch with a job that is made the table."""
    batch = BatchIdentity("q", 1, *_at(10, 20).values(), "d", cluster="one")
    last = replace(_snapshot(3, 0), properties=_at(5, 10))
    properties = _at(*since) | ({} if cluster is None else {CLUSTER: cluster})
    other = replace(_snapshot(4, 0), commit_user="other", properties=properties)
    history = UserHistory((last,), None, True, since=(other,), is_running=True)
    if since == (20, 30):
        # What came between is not known where snapshots have expired.
        with pytest.raises(CheckpointMismatchError, match="offsets 5 up to 30"):
            decide(batch, replace(history, since_is_whole=False), allow_reprocess=False)
    if since[1] <= 10:
        # What was read up to here is not read again by a job that goes on.
        assert decide(batch, replace(history, is_running=False), allow_reprocess=False) == WriteBatch()
    if refused is None:
        assert decide(batch, history, allow_reprocess=False) == WriteBatch()
    else:
        with pytest.raises(CheckpointMismatchError, match=f"query other has written the same records .* {refused}"):
            decide(batch, history, allow_reprocess=False)
        assert decide(batch, history, allow_reprocess=True) == WriteBatch()


@pytest.mark.parametrize("covered", [True, False])
def test_records_that_neither_query_has_written_are_named(covered: bool) -> None:
    """A second job that began further on, as by named offsets: the table's newest offsets lie behind a gap."""
    batch = BatchIdentity("q", 1, *_at(10, 20).values(), "d", cluster="one")
    since = [_at(20, 30), *([_at(10, 20)] if covered else [])]
    others = tuple(
        replace(_snapshot(9 - i, 0), commit_user="other", properties=offsets | {CLUSTER: "one"})
        for i, offsets in enumerate(since)
    )
    with pytest.raises(CheckpointMismatchError, match="offsets 20 up to 30") as e:
        decide(batch, UserHistory((_snapshot(3, 0),), None, True, since=others), allow_reprocess=False)
    assert ("If its earlier batches do not have the records from offset 10 to offset" in e.value.message) is not covered


@pytest.mark.parametrize(
    ("start", "known", "cluster", "error"),
    [
        (0, "new", "one", CheckpointMismatchError),
        (0, "old", "one", None),
        (0, "old", "two", CheckpointMismatchError),
        (7, "old", "one", None),
        (5, "old", "one", TopicCreatedAgainError),
        (5, "new", "one", None),
        (5, "old", "two", None),
    ],
    ids=["same topic", "another one", "unknown", "named offsets", "the table's offsets", "goes on", "cannot tell"],
)
def test_a_new_query_may_read_a_topic_that_was_created_again_but_not_from_the_offsets_of_the_old_one(
    start: int, known: str, cluster: str, error: type[CheckpointMismatchError] | None
) -> None:
    """The table says of another cluster than the batch only what its ids are, where the batch's cluster is unknown."""
    properties = {CLUSTER: "one", TOPIC_IDS: f'{{"t":"{known}"}}', END_OFFSETS: '[{"t": {"0": 5}}]'}
    other = replace(_snapshot(1, 0), commit_user="other", properties=properties)
    offsets = (f'[{{"t": {{"0": {start}}}}}]', '[{"t": {"0": 9}}]')
    batch = BatchIdentity("q", 0, *offsets, "d", topic_ids={"t": "new"}, cluster=cluster if cluster == "one" else None)
    history = UserHistory((), None, True, (other,))
    if error is None:
        assert decide(batch, history, allow_reprocess=False) == WriteBatch()
    else:
        with pytest.raises(error) as e:
            decide(batch, history, allow_reprocess=False)
        assert type(e.value) is error
    assert decide(batch, history, allow_reprocess=True) == WriteBatch()


def test_a_query_that_read_the_old_topic_meanwhile_has_not_written_the_same_records() -> None:
    batch = BatchIdentity("q", 1, *_at(10, 20).values(), "d", cluster="one", topic_ids={"a": "new"})
    history = UserHistory((replace(_snapshot(3, 0), properties=_at(5, 10)),), None, True, is_running=True)
    for known, is_refused in (("new", True), ("old", False)):
        properties = _at(10, 20) | {CLUSTER: "one", TOPIC_IDS: f'{{"a":"{known}"}}'}
        since = (replace(_snapshot(4, 0), commit_user="other", properties=properties),)
        if is_refused:
            with pytest.raises(CheckpointMismatchError, match="has written the same records"):
                decide(batch, replace(history, since=since), allow_reprocess=False)
        else:
            assert decide(batch, replace(history, since=since), allow_reprocess=False) == WriteBatch()
