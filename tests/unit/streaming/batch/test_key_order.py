"""What counts as a key of several partitions without looking at keys, and what is refused before a task starts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.conf.errors import OptionError
from bucketline.conf.job import JobConfig
from bucketline.conf.resolve import read_assignments, resolve_job
from bucketline.state.lsm.merge.engines import merging_of
from bucketline.state.store.table.table import create_table, handle_of
from bucketline.streaming.batch.key_order import begun_with_known, is_full, known_before, may_begin
from bucketline.streaming.cli.settings import settings_table
from bucketline.streaming.job.check import check_job

SIZES = st.dictionaries(st.integers(0, 5), st.integers(0, 60), min_size=2)


def taken_by_spark(held: dict[int, int], limit: int) -> dict[int, int]:
    """How many records Spark takes of each partition: all, or a part of the limit in proportion to what each holds."""
    total = sum(held.values())
    if total == 0:
        return held
    shares = {p: limit * (size / total) for p, size in held.items()}
    whole = {p: -int(-share // 1) if share < 1 else int(share) for p, share in shares.items()}
    return {p: min(size, whole[p]) if size else 0 for p, size in held.items()}


@given(SIZES, st.integers(1, 100), st.data())
def test_a_partition_is_begun_early_where_older_ones_may_hold_more_than_the_batch_takes(
    held: dict[int, int], limit: int, data: st.DataObject
) -> None:
    """Nothing that leaves older records behind is missed; what is not full takes all there is."""
    old = data.draw(st.sets(st.sampled_from(sorted(held))))
    starts = {("t", p): 100 if p in old else 0 for p in held}
    taken = taken_by_spark(held, limit)
    ends = {place: at + taken[place[1]] for place, at in starts.items()}
    early = begun_with_known(starts, ends, {("t", p) for p in old}) if is_full(starts, ends, limit) else []
    assert may_begin(starts, ends) or not early
    begun = sorted(("t", p) for p in held if p not in old and taken[p])
    if any(held[p] > taken[p] for p in old):
        assert early == begun
    if not is_full(starts, ends, limit):
        assert taken == held
    assert not is_full(starts, ends, None)


def test_only_older_partitions_of_the_same_topic_make_a_new_one_early() -> None:
    starts = {("a", 0): 5, ("b", 0): 7}
    ends = {("a", 0): 15, ("b", 0): 7, ("b", 1): 10}
    assert begun_with_known(starts, ends, {("a", 0), ("b", 0)}) == []
    assert begun_with_known(starts, {**ends, ("b", 0): 8}, {("a", 0), ("b", 0)}) == [("b", 1)]
    assert not may_begin(starts, ends) and may_begin(starts, {**ends, ("b", 0): 8})


def test_a_query_that_began_with_an_empty_topic_knows_the_partitions_of_then() -> None:
    began = {("t", 0): 0, ("t", 1): 0}
    starts, ends = dict(began), {("t", 0): 5, ("t", 1): 5, ("t", 2): 5}
    assert may_begin(starts, ends)
    assert begun_with_known(starts, ends, known_before(began, [])) == [("t", 2)]


def test_what_a_stream_knows_is_what_it_began_with_or_what_the_table_held_by_then() -> None:
    began = {("t", 0): 40, ("t", 1): 30, ("t", 2): 0, ("u", 0): 0}
    assert known_before(began, []) == set(began)
    earlier = {("t", 0): 40, ("t", 1): 30}
    assert known_before(began, [earlier]) == {("t", 0), ("t", 1), ("u", 0)}
    assert known_before(began, [{**earlier, ("t", 2): 0}]) == {("t", 0), ("t", 1), ("u", 0)}
    # The topic is read anew, so that all of its partitions begin together.
    assert known_before({("t", 0): 0, ("t", 1): 0, ("t", 2): 0}, [earlier]) == {("t", 0), ("t", 1), ("t", 2)}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"ignore-delete": "true"}, True),
        ({"sequence.field": "n"}, False),
        ({"merge-engine": "first-row"}, True),
        ({"merge-engine": "aggregation"}, True),
        ({"merge-engine": "aggregation", "fields.default-aggregate-function": "sum"}, False),
        ({"merge-engine": "aggregation", "fields.default-aggregate-function": "max"}, False),
        ({"merge-engine": "aggregation", "fields.default-aggregate-function": "product"}, True),
        ({"merge-engine": "aggregation", "fields.n.aggregate-function": "sum"}, True),
        (
            {
                "merge-engine": "aggregation",
                "fields.default-aggregate-function": "sum",
                "aggregation.remove-record-on-delete": "true",
            },
            True,
        ),
        ({"merge-engine": "aggregation", "sequence.field": "n"}, False),
        ({"merge-engine": "partial-update"}, True),
        ({"merge-engine": "partial-update", "fields.n.sequence-group": "m"}, False),
        ({"merge-engine": "partial-update", "fields.n.sequence-group": "n"}, True),
    ],
)
def test_order_matters_unless_the_table_orders_rows_or_their_order_makes_no_difference(
    tmp_path: Path, options: dict[str, str], expected: bool
) -> None:
    columns = "id BIGINT NOT NULL, n BIGINT, m BIGINT"
    table = create_table(str(tmp_path / "s.db" / "t"), columns, ("id",), options={"bucket": "1", **options})
    assert merging_of(handle_of(table).table_schema).order_matters() is expected


def test_the_rows_of_a_table_without_a_key_have_no_order_to_lose(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "s.db" / "t"), "id BIGINT", options={"bucket": "2", "bucket-key": "id"})
    assert not merging_of(handle_of(table).table_schema).order_matters()


def job(root: Path, *settings: str, **more: str) -> JobConfig:
    fixed = (
        f"table={root / 's.db' / 't'}",
        "source.format=kafka",
        "source.options.kafka.bootstrap.servers=localhost:9092",
        "source.options.subscribe=orders",
        "source.decode=debezium-json",
        f"checkpoint={root / 'checkpoint'}",
        "create.schema=id BIGINT NOT NULL, n BIGINT",
        "create.primary-key=id",
        "create.options.bucket=1",
    )
    return resolve_job({}, read_assignments((*fixed, *settings)))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), ("fail", "default")),
        (("source.decode=maxwell-json",), ("fail", "default")),
        (("source.decode=json",), ("warn", "default")),
        (("source.decode=json", "key-order=fail"), ("fail", "command line")),
        (("source.decode=none",), None),
    ],
)
def test_the_printed_settings_say_what_key_order_is(
    tmp_path: Path, settings: tuple[str, ...], expected: tuple[str, str] | None
) -> None:
    rows = settings_table(job(tmp_path, *settings)).to_pylist()
    found = [(r["value"], r["origin"]) for r in rows if "key-order" in r["key"]]
    assert found == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("key-order=stop", "option 'key-order' = 'stop'.*fail"),
        ("options.key-order=warn", "'options.key-order' in command line must be written 'key-order' in a job"),
        ("keyorder=warn", "did you mean 'key-order'"),
    ],
)
def test_unknown_values_and_places_of_key_order_are_refused(tmp_path: Path, setting: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        check_job(job(tmp_path, setting))


def test_key_order_is_refused_for_what_is_not_kafka(tmp_path: Path) -> None:
    settings = ("source.format=rate", "source.decode=none", "key-order=warn")
    with pytest.raises(OptionError, match=r"key-order needs a Kafka source, but source.format is rate"):
        check_job(job(tmp_path, *settings))
