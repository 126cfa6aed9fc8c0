"""Until when Kafka keeps what parked tables have missed, as the log of a job says it."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.job.many.kept_records import KeptRecords
from bucketline.streaming.job.many.sink import line_of
from bucketline.streaming.many.job import Told
from bucketline.streaming.many.ledger import Entry, Ledger, Parked

PARKED = Entry(
    "b", fed=frozenset({("x", 0), ("y", 1)}), parked=Parked(3, "q", "d", {}, {}, "why", 0), lacks_since_ms=10
)


def ledger(**tables: Entry) -> Ledger:
    return Ledger("q", 3, "d", "p", {}, tables)


@pytest.mark.parametrize(
    ("entry", "kept", "until"),
    [
        (PARKED, {"x": 100, "y": 50}, 60),
        (PARKED, {"x": 100, "y": -1}, 110),
        (PARKED, {"x": -1, "y": -1}, -1),
        (PARKED, {"x": 100}, None),
        (replace(PARKED, lacks_since_ms=None), {"x": 100, "y": 50}, None),
        (replace(PARKED, fed=frozenset()), {"x": 100, "y": 50}, None),
    ],
)
def test_it_is_the_time_of_the_first_record_and_the_shortest_retention(
    entry: Entry, kept: dict[str, int], until: int | None
) -> None:
    kept_records = KeptRecords(lambda topics: {t: kept[t] for t in topics if t in kept})
    assert kept_records.until_ms(ledger(t=entry, other=Entry("b", fed=frozenset({("x", 0)})))) == {"t": until}


def test_kafka_is_asked_while_a_table_is_parked_and_every_ten_minutes() -> None:
    asked: list[Collection[str]] = []
    now = [0.0]

    def retention(topics: Collection[str]) -> dict[str, int]:
        asked.append(list(topics))
        return dict.fromkeys(topics, len(asked))

    kept = KeptRecords(retention, lambda: now[0])
    assert kept.until_ms(ledger(t=Entry("b", fed=frozenset({("x", 0)})))) == {} and asked == []
    for _ in range(3):
        assert kept.until_ms(ledger(t=PARKED)) == {"t": 11}
    assert asked == [["x", "y"]]
    now[0] = 601.0
    assert kept.until_ms(ledger(t=PARKED)) == {"t": 12}
    more = replace(PARKED, fed=frozenset({("z", 0)}))
    assert kept.until_ms(ledger(t=PARKED, u=more)) == {"t": 13, "u": 13}
    assert asked[1:] == [["x", "y"], ["x", "y", "z"]]


def test_the_line_of_each_batch_names_parked_tables_those_first_whose_records_are_removed_first() -> None:
    identity = BatchIdentity("q", 7, None, None, "d")
    day = 86_400_000
    parked = {"w/a": None, "w/b": 20 * day, "w/c": -1, "w/d": 10 * day}
    assert line_of(Told(), identity, {}) == "batch 7 | 0 tables, 0 rows in, 0 stored"
    assert line_of(Told(), identity, parked).endswith(
        "| 4 tables parked (d, Kafka keeps its missed records until 1970-01-11 00:00 UTC; "
        "b, Kafka keeps its missed records until 1970-01-21 00:00 UTC; a; ...)"
    )
    assert line_of(Told(), identity, {"w/c": -1}).endswith("| 1 table parked (c, Kafka keeps its missed records)")
