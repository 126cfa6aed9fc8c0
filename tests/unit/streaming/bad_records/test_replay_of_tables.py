"""Bad records of a job of several tables go through its routes again: each once, whatever the replay dies of."""

from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.store.table.table import create_table, handle_of
from bucketline.streaming.bad_records.replays import Replayed
from bucketline.streaming.bad_records.stored import stored_in
from bucketline.streaming.decode.rejects import RECORD_COLUMNS
from bucketline.streaming.job.bad_place import places_of, ready_place
from bucketline.streaming.job.many.pin import with_pinned
from bucketline.streaming.job.many.replay import ReplayFiles, as_replayed, replay_job, replay_of
from bucketline.streaming.job.many.sink import begun_otherwise
from bucketline.streaming.job.many.table_opener import JobTableOpener
from bucketline.streaming.job.replay import replayed_identity, warn_of_order
from bucketline.streaming.many.batch import Input, write_many
from bucketline.streaming.many.job import ManyState
from bucketline.streaming.many.ledger_files import Wish
from bucketline.streaming.many.tables import Tables
from tests.support.spark.fake_topic import FakeTopic
from tests.support.spark.local_tables import LocalTables
from tests.support.spark.many_shop import Shop
from tests.support.spark.tasks import killed_at

SUMS = '{bucket: "2", merge-engine: aggregation, fields.n.aggregate-function: sum}'
HEAD = f"""
create: {{schema: "id BIGINT NOT NULL, n BIGINT", primary-key: [id], options: {SUMS}}}
unmatched: bad-record
"""
ROUTE = '  - {source-table: "regex:shop\\\\..*", table: "ROOT/w/{table}"MORE}\n'
AWAY = '  - {source-table: "regex:away\\\\..*", table: "ROOT/w/{table}"}\n'
FOLDER = "bad-records: {path: ROOT/bad, max: 50}\n"
TABLE = "bad-records: {table: ROOT/ops.db/bad, max: 50}\n"
TOPIC = "bad-records: {topic: bad, max: 50}\n"
MENDED = ', select: "id, coalesce(try_cast(text AS BIGINT), 1) AS n"'


def text(place: str, *routes: str, more: str = ', select: "id, cast(text AS BIGINT) AS n"') -> str:
    return f"{HEAD}{place}tables:\n{ROUTE.replace('MORE', more)}{''.join(routes)}"


def put(job: Shop, database: str, table: str, id: int, text: object) -> None:
    row = {"id": id, "text": text, "n": 1}
    event = {"before": None, "after": row, "op": "c", "source": {"db": database, "table": table}}
    job.topic.put({"id": id}, event)


def replay(job: Shop) -> Replayed:
    """What --replay does, with tasks in this process."""
    routed = as_replayed(job.routed)
    files, opener_of = ReplayFiles.of(routed.common), partial(JobTableOpener, zone="UTC", has_headers=True)

    user = files.user()
    tables = Tables(opener_of(routed), user)

    def write(rows: pa.Table, number: int) -> None:
        own = files.of_batch(number)
        many, state = job.with_topic(replay_job(routed)), ManyState(own, tables)
        identity = replayed_identity(user, number)
        other = begun_otherwise(many, state, identity)
        if other is not None:
            pinned = with_pinned(routed, other)
            many, state = job.with_topic(replay_job(pinned)), ManyState(own, Tables(opener_of(pinned), user))
        records: Any = [[rows.select(list(RECORD_COLUMNS))]]
        write_many(many, state, identity, LocalTables(), Input(lambda: records, lambda _: []))
        files.forget(number - 1)

    stored = [job.bad_topic.stored] if job.bad_topic else [stored_in(ready_place(c, {})) for c in places_of(routed)]
    places = [place for place in stored if place is not None]
    return replay_of(routed, opener_of(routed), files, write, places).run(lambda: False)


def shop(root: Path, place: str, *routes: str) -> Shop:
    job = Shop(root, text(place, *routes))
    job.bad_topic = FakeTopic.beside(f"{root}/checkpoint") if "topic" in place else None
    return job


def sums(job: Shop, table: str) -> dict[int, int]:
    return {row["id"]: row["n"] for row in job.rows(table)}


@pytest.mark.parametrize(("place", "at", "step"), [(FOLDER, 16, 16), (TABLE, 36, 70), (TOPIC, 17, 16)])
def test_bad_records_of_all_routes_are_replayed_each_once_whatever_dies(
    tmp_path: Path, place: str, at: int, step: int
) -> None:
    job = shop(tmp_path, place)
    for number in range(8):
        put(job, "shop", f"t{number % 2}", number, "1" if number % 3 else "x")
        put(job, "away", "far", number, "1")
        if number % 4 == 3:
            job.batch()
    put(job, "shop", "t0", 20, "x")
    job.plans.append(job.topic.ends)
    with killed_at(at) as death:
        job.write(job.done)
    assert death.is_dead
    job.crash()
    job.text = text(place, AWAY, more=MENDED)
    at, found, deaths = 7, list[Replayed](), 0
    while not found:
        with killed_at(at, "before" if deaths % 2 else "after") as death:
            found.append(replay(job))
        at, deaths = at + step, deaths + death.is_dead
    assert deaths > 1
    assert found[0].left == 1, "what the batch had put aside that died is not in its table yet"
    job.batch()
    replay(job)
    assert replay(job).taken == 0
    assert sums(job, "t0") == dict.fromkeys([*range(0, 8, 2), 20], 1)
    assert sums(job, "t1") == dict.fromkeys(range(1, 8, 2), 1)
    assert sums(job, "far") == dict.fromkeys(range(8), 1)


def test_what_is_still_bad_waits_for_the_next_replay_however_few_a_batch_may_have(tmp_path: Path) -> None:
    few = FOLDER.replace("50", "4")
    job = Shop(tmp_path, text(few))
    for number in range(8):
        put(job, "shop", "t0", number, "x")
        if number % 4 == 3:
            job.batch()
    put(job, "away", "far", 1, "1")
    job.batch()
    assert replay(job) == Replayed(9, 9, 0)
    job.text = text(few, more=MENDED)
    assert replay(job) == Replayed(9, 1, 0)
    assert sums(job, "t0") == dict.fromkeys(range(8), 1)


def test_records_that_another_job_has_put_aside_stay_where_they_are(tmp_path: Path) -> None:
    job, other = Shop(tmp_path, text(FOLDER)), Shop(tmp_path / "other", text(FOLDER.replace("ROOT", str(tmp_path))))
    other.query = "another"
    for of, table in ((job, "t0"), (other, "t1")):
        put(of, "shop", table, 1, "x")
        put(of, "away", f"far-{table}", 1, "1")
        of.batch()
    job.text = text(FOLDER, AWAY, more=MENDED)
    assert replay(job) == Replayed(2, 0, 0)
    other.text = text(FOLDER.replace("ROOT", str(tmp_path)), AWAY, more=MENDED)
    assert replay(other) == Replayed(2, 0, 0)


def test_bad_records_before_the_query_began_again_are_replayed_too(tmp_path: Path) -> None:
    job = Shop(tmp_path, text(FOLDER))
    put(job, "shop", "t0", 1, "x")
    put(job, "shop", "t0", 2, "1")
    job.batch()
    assert replay(job) == Replayed(1, 1, 0)
    job.begin_again()
    put(job, "shop", "t0", 3, "x")
    job.batch()
    job.text = text(FOLDER, more=MENDED)
    assert replay(job) == Replayed(2, 0, 0)
    assert sums(job, "t0") == {1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize("place", [FOLDER, TABLE, TOPIC])
def test_a_table_whose_commit_fails_has_no_bad_records_until_it_has_read_them_again(tmp_path: Path, place: str) -> None:
    job = shop(tmp_path, f"{place}on-table-failure: park\n")
    for number, value in ((1, "1"), (2, "x")):
        put(job, "shop", "t0", number, value)
        put(job, "shop", "t1", number, value)
        snapshots, away = tmp_path / "w" / "t1" / "snapshot", tmp_path / "away"

        def breaks(snapshots: Path = snapshots, away: Path = away) -> None:
            if not away.exists():
                snapshots.rename(away)
                snapshots.write_text("no folder")

        job.after_bad_records = breaks if number == 2 else None
        job.crash()
        told = job.batch()
    assert list(told.failed) == [f"{tmp_path}/w/t1"]
    snapshots.unlink()
    away.rename(snapshots)
    job.after_bad_records = None
    job.text = text(place, more=MENDED)
    assert replay(job) == Replayed(1, 0, 0)
    job.ask(Wish.UNPARK, "t1")
    job.text = text(place)
    job.crash()
    job.batch()
    job.text = text(place, more=MENDED)
    assert replay(job) == Replayed(1, 0, 0)
    assert sums(job, "t0") == sums(job, "t1") == {1: 1, 2: 1}


def test_a_job_without_a_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"does not store bad records: set bad-records\.path"):
        as_replayed(Shop(tmp_path, text("")).routed)


def test_a_replay_says_that_older_rows_win_where_no_column_orders_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, options in (("plain", {}), ("ordered", {"sequence.field": "n"})):
        table = create_table(f"{tmp_path}/{name}", "id BIGINT NOT NULL, n BIGINT", ("id",), options=options)
        warn_of_order(handle_of(table))
    [said] = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"{tmp_path}/plain has no sequence.field: a replayed record replaces the row of its key")
