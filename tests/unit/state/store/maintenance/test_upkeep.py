"""What writers do by the rules of a table: partitions expire and are marked as done, tags are created and go again."""

import json
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.determinism import World
from bucketline.state.errors import SchemaMismatchError, StorageError
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.maintenance.auto_tags import Tagged, TagWork, create_tags
from bucketline.state.store.maintenance.upkeep import Upkeep, Upkept
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.table.compact import compact_table
from bucketline.state.store.table.maintenance import expire_table_partitions, mark_table_done
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.table.write import write_table
from bucketline.state.store.write.table_at import TableAt, table_at
from tests.support.tables.commit_table import StillClock
from tests.support.tables.worlds import handle_in

DAY_MS = 86_400_000


def _clock(text: str) -> StillClock:
    return StillClock(int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000))


def _table(tmp_path: Path, *, key: tuple[str, ...] = ("k", "dt"), kind: str = "STRING", **options: str) -> Table:
    given = {"bucket": "1", "sink.process-time-zone": "UTC", **options}
    return create_table(
        str(tmp_path / "t"), f"k INT NOT NULL, dt {kind}, v INT", primary_key=key, partition_by=["dt"], options=given
    )


def _write(table: Table, clock: StillClock, *days: object, k: int = 1) -> None:
    columns = {"k": [k] * len(days), "dt": list(days), "v": [0] * len(days)}
    write_table(handle_in(table, clock=clock), pa.table(columns, schema=table.schema))


def _days(table: Table) -> set[object]:
    return set(table.to_arrow(columns=["dt"])["dt"].to_pylist())


class _Fraction:
    def fraction(self) -> float:
        return 0.5


def _upkeep(table: Table, clock: StillClock) -> tuple[Upkeep, TableAt]:
    session = table_at(handle_in(table.refreshed(), clock=clock, random=_Fraction()), {}).refreshed()
    return Upkeep(), session


def _commit(upkeep: Upkeep, session: TableAt) -> Upkept:
    session = session.followed()
    newest = session.view.snapshot
    assert newest is not None
    return upkeep.after_commit(session, (), [newest])


def test_partitions_older_than_their_time_are_dropped(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"partition.expiration-time": "7 d"})
    clock = _clock("2026-01-10T00:00:00")
    _write(table, clock, "2026-01-02", "2026-01-03", "2026-01-09", "no time")
    assert expire_table_partitions(handle_in(table, clock=clock), older_than=None) == ("dt=2026-01-02",)
    assert _days(table) == {"2026-01-03", "2026-01-09", "no time"}
    newest = table.snapshots().to_pylist()[-1]
    assert (newest["commit_kind"], newest["delta_record_count"]) == ("OVERWRITE", -1)
    assert table.doctor(rows=True) == []
    assert expire_table_partitions(handle_in(table, clock=clock), older_than=timedelta(days=3)) == ("dt=2026-01-03",)


@pytest.mark.parametrize(
    ("kind", "key", "bucket"),
    [("STRING", ("k", "dt"), "-1"), ("STRING", ("k",), "-1"), ("STRING", ("k", "dt"), "-2"), ("INT", (), "-1")],
)
def test_partitions_of_every_bucket_mode_expire_and_get_rows_again(
    tmp_path: Path, kind: str, key: tuple[str, ...], bucket: str
) -> None:
    options = {"partition.expiration-time": "1 d", "partition.timestamp-formatter": "yyyyMMdd", "bucket": bucket}
    if bucket == "-2":
        options["postpone.batch-write-fixed-bucket"] = "true"
    table = _table(tmp_path, key=key, kind=kind, **options)
    clock = _clock("2026-01-10T00:00:00")
    as_kind = int if kind == "INT" else str
    _write(table, clock, as_kind("20260101"), k=1)
    _write(table, clock, as_kind("20260110"), k=2)
    assert expire_table_partitions(handle_in(table, clock=clock), older_than=None) == ("dt=20260101",)
    _write(table, clock, as_kind("20260101"), k=1)
    assert _days(table) == {as_kind("20260101"), as_kind("20260110")}
    assert table.to_arrow().num_rows == 2
    assert table.doctor(rows=True) == []


def test_by_update_time_the_newest_file_of_a_partition_counts(tmp_path: Path) -> None:
    options = {"partition.expiration-time": "2 d", "partition.expiration-strategy": "update-time"}
    table, clock = _table(tmp_path, **options), _clock("2026-01-10T00:00:00")
    _write(table, clock, "a", "b")
    clock.now += DAY_MS
    _write(table, clock, "b")
    clock.now += DAY_MS
    assert expire_table_partitions(handle_in(table, clock=clock), older_than=None) == ()
    clock.now += 1
    assert expire_table_partitions(handle_in(table, clock=clock), older_than=None) == ("dt=a",)


def test_a_pattern_puts_the_time_together_of_several_columns(tmp_path: Path) -> None:
    table = create_table(
        str(tmp_path / "t"),
        "k INT, dt STRING, dt2 STRING, hh INT",
        partition_by=["dt", "dt2", "hh"],
        options={
            "partition.expiration-time": "1 h",
            "partition.timestamp-pattern": "$dt2 $hh:00:00",
            "partition.timestamp-formatter": "yyyyMMdd H:mm:ss",
        },
    )
    clock = _clock("2026-01-10T05:00:00")
    rows = {"k": [1, 2], "dt": ["x", None], "dt2": ["20260110"] * 2, "hh": [3, 4]}
    write_table(handle_in(table, clock=clock), pa.table(rows, schema=table.schema))
    assert expire_table_partitions(handle_in(table, clock=clock), older_than=None) == ("dt=x/dt2=20260110/hh=3",)


def test_at_most_so_many_partitions_go_at_once_the_first_ones_in_so_many_commits(tmp_path: Path) -> None:
    options = {
        "partition.expiration-time": "1 d",
        "partition.expiration-max-num": "3",
        "partition.expiration-batch-size": "2",
    }
    table, clock = _table(tmp_path, **options), _clock("2026-01-10T00:00:00")
    _write(table, clock, "2026-01-04", "2026-01-01", "2026-01-03", "2026-01-02")
    dropped = expire_table_partitions(handle_in(table, clock=clock), older_than=None)
    assert dropped == ("dt=2026-01-01", "dt=2026-01-02", "dt=2026-01-03")
    kinds = table.snapshots()["commit_kind"].to_pylist()
    assert kinds[-2:] == ["OVERWRITE", "OVERWRITE"]
    assert _days(table) == {"2026-01-04"}


def test_a_stream_checks_once_in_the_interval(tmp_path: Path) -> None:
    table, clock = _table(tmp_path, **{"partition.expiration-time": "1 d"}), _clock("2026-01-10T00:00:00")
    _write(table, clock, "2026-01-01")
    upkeep, session = _upkeep(table, clock)
    # The random first check is half an interval away.
    assert _commit(upkeep, session).dropped_partitions == ()
    clock.now += DAY_MS // 48
    assert _commit(upkeep, session).dropped_partitions == ()
    clock.now += 1
    assert _commit(upkeep, session).dropped_partitions == ("dt=2026-01-01",)
    _write(table, clock, "2026-01-01")
    clock.now += DAY_MS // 24
    assert _commit(upkeep, session).dropped_partitions == ()
    clock.now += 1
    assert _commit(upkeep, session).dropped_partitions == ("dt=2026-01-01",)


@pytest.mark.parametrize(
    ("options", "dropped"),
    [
        ({}, False),
        ({"end-input.check-partition-expire": "true"}, True),
        ({"partition.expiration-check-interval": "0 s"}, True),
    ],
)
def test_a_batch_write_checks_where_the_table_wants_that(
    tmp_path: Path, options: dict[str, str], dropped: bool
) -> None:
    table, clock = _table(tmp_path, **{"partition.expiration-time": "1 d"}, **options), _clock("2026-01-10T00:00:00")
    _write(table, clock, "2026-01-01", "2026-01-10")
    assert ("2026-01-01" not in _days(table)) is dropped


def test_a_write_only_table_leaves_its_rules_to_compactions(tmp_path: Path) -> None:
    options = {"partition.expiration-time": "1 d", "end-input.check-partition-expire": "true", "write-only": "true"}
    table = _table(tmp_path, **options, **{"tag.automatic-creation": "process-time"})
    clock = _clock("2026-01-10T00:00:00")
    _write(table, clock, "2026-01-01", "2026-01-10")
    _write(table, clock, "2026-01-10")
    assert _days(table) == {"2026-01-01", "2026-01-10"} and Tags(handle_of(table).io, table.path).names() == []
    compact_table(handle_in(table, clock=clock))
    assert _days(table) == {"2026-01-10"} and Tags(handle_of(table).io, table.path).names() == ["2026-01-09"]


def test_a_partition_without_a_time_is_refused_where_the_table_is_strict(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"partition.timestamp-format.strict": "true"})
    _write(table, _clock("2026-01-10T00:00:00"), "2026-01-10")
    with pytest.raises(SchemaMismatchError, match="find no time in partition dt=x"):
        _write(table, _clock("2026-01-10T00:00:00"), "2026-01-11", "x")
    assert _days(table) == {"2026-01-10"}
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()


def test_a_table_without_partitions_is_refused_to_drop_any(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="needs a table with partitions"):
        create_table(str(tmp_path / "t"), "k INT", options={"partition.expiration-time": "1 d"})
    with pytest.raises(OptionError, match="nothing says when"):
        _table(tmp_path).expire_partitions()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["2026-01-09", "2026-01-10"]),
        ({"tag.creation-delay": "2 h"}, ["2026-01-09"]),
        ({"tag.period-formatter": "without_dashes"}, ["20260109", "20260110"]),
        ({"tag.creation-period": "hourly"}, ["2026-01-10 07", "2026-01-11 00"]),
        ({"tag.creation-period": "two-hours"}, ["2026-01-10 06", "2026-01-10 22"]),
        ({"tag.creation-period": "hourly", "tag.automatic-completion": "true"}, ["2026-01-10 07", "2026-01-10 08"]),
        ({"tag.creation-period-duration": "30 min"}, ["202601100730", "202601110030"]),
        ({"sink.process-time-zone": "Asia/Tokyo"}, ["2026-01-09", "2026-01-10"]),
        ({"tag.num-retained-max": "1"}, ["2026-01-10"]),
    ],
)
def test_a_commit_creates_the_tag_of_the_period_before(
    tmp_path: Path, options: dict[str, str], names: list[str]
) -> None:
    table, clock = _table(tmp_path, **{"tag.automatic-creation": "process-time"}, **options), _clock("2026-01-10T08:10")
    _write(table, clock, "a")
    upkeep, session = _upkeep(table, clock)
    _write(table, clock, "a")
    assert _commit(upkeep, session).tags == ()
    clock.now += DAY_MS * 17 // 24
    _write(table, clock, "a")
    assert Tags(handle_of(table).io, table.path).names() == names
    assert _commit(upkeep, session).tags == ()


def test_a_stream_tags_the_snapshots_of_others_too_and_reads_them_only_when_a_tag_is_due(tmp_path: Path) -> None:
    table, clock = _table(tmp_path), _clock("2026-01-10T08:00")
    for _ in range(3):
        _write(table, clock, "a")
        clock.now += DAY_MS
    table = table.set_options({"tag.automatic-creation": "process-time"})
    upkeep, session = _upkeep(table, clock)
    assert _commit(upkeep, session).tags == ("2026-01-09", "2026-01-10", "2026-01-11")
    assert [t.snapshot.id for t in Tags(handle_of(table).io, table.path).list()] == [1, 2, 3]


class _Listing(LocalIO):
    """Counts the listings of a folder of tags, and the tags that are read."""

    seen: ClassVar[list[str]] = []

    def list_names(self, directory: str) -> list[str]:
        if directory.endswith("/tag"):
            self.seen.append("listing")
        return super().list_names(directory)

    def read_optional(self, path: str) -> bytes | None:
        if "/tag/" in path:
            self.seen.append(path.rpartition("/tag/")[2])
        return super().read_optional(path)


def test_many_tags_at_once_are_counted_with_one_listing(tmp_path: Path) -> None:
    table, clock = _table(tmp_path), _clock("2026-01-10T08:00")
    for _ in range(5):
        _write(table, clock, "a")
        clock.now += DAY_MS
    table.create_tag("mine", 5)
    options = {"tag.automatic-creation": "process-time", "tag.num-retained-max": "5"}
    table = table.set_options(options)
    handle = handle_of(table)
    newest = handle.snapshot_store.latest()
    assert newest is not None
    work = TagWork(_Listing(), table.path, table.path, handle.table_schema, World(clock))
    _Listing.seen.clear()
    _, made = create_tags(work, newest, Tagged(1, None))
    assert made == [f"2026-01-{day:02}" for day in range(9, 14)] and _Listing.seen == ["listing"]
    table = table.set_options({"tag.num-retained-max": "2"})
    _write(table, clock, "a")
    assert table.tags()["tag_name"].to_pylist() == ["2026-01-13", "mine", "2026-01-14"]


def test_a_created_tag_lives_as_long_as_tags_do_by_default(tmp_path: Path) -> None:
    options = {"tag.default-time-retained": "2 d", "tag.create-success-file": "true"}
    table, clock = _table(tmp_path, **options, **{"tag.automatic-creation": "process-time"}), _clock("2026-01-10T08:00")
    _write(table, clock, "a")
    tag = Tags(handle_of(table).io, table.path).get("2026-01-09")
    assert tag is not None and (tag.created_local_ms, tag.retained_ms) == (clock.now, 2 * DAY_MS)
    success = Path(table.path, "tag/tag-success-file/2026-01-09_SUCCESS")
    assert success.read_text() == f'{{\n  "creationTime" : {clock.now},\n  "modificationTime" : {clock.now}\n}}'
    table.create_tag("mine")
    mine = Tags(handle_of(table).io, table.path).get("mine")
    assert mine is not None and mine.retained_ms == 2 * DAY_MS
    assert Tags(handle_of(table).io, table.path).names() == ["2026-01-09", "mine"]
    assert table.delete_tag("2026-01-09") and not success.exists()
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()


def test_a_tag_whose_time_is_over_stays_where_the_table_keeps_such_tags(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"tag.time-expire-enabled": "false"})
    _write(table, _clock("2026-01-10T08:00"), "a")
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    Tags(handle_of(table).io, table.path).create(Tag("old", newest, created_local_ms=0, retained_ms=1))
    assert table.expire_snapshots(retain_max=1).tags == ()
    table = table.unset_options("tag.time-expire-enabled")
    assert table.expire_snapshots(retain_max=1).tags == ("old",)


def test_a_batch_write_moves_the_tag_of_its_day(tmp_path: Path) -> None:
    options = {"tag.automatic-creation": "batch", "tag.num-retained-max": "2"}
    table, clock = _table(tmp_path, **options), _clock("2026-01-10T08:00")
    for _ in range(3):
        _write(table, clock, "a")
        _write(table, clock, "a")
        table.create_tag(f"mine-{clock.now}")
        clock.now += DAY_MS
    tags = {t.name: t.snapshot.id for t in Tags(handle_of(table).io, table.path).list() if t.name.startswith("batch")}
    assert tags == {"batch-write-2026-01-11": 4, "batch-write-2026-01-12": 7}
    assert len(Tags(handle_of(table).io, table.path).names()) == 5
    table = table.set_options({"tag.batch.customized-name": "last", "tag.num-retained-max": "9"})
    _write(table, clock, "a")
    _write(table, clock, "a")
    last = Tags(handle_of(table).io, table.path).get("last")
    assert last is not None and last.snapshot.id == handle_of(table).snapshot_store.latest_id()


@pytest.mark.parametrize(("zone", "name"), [("UTC", "2026-01-09"), ("Asia/Shanghai", "2026-01-10")])
def test_a_tag_by_watermark_waits_for_one(tmp_path: Path, zone: str, name: str) -> None:
    options = {"tag.automatic-creation": "watermark", "sink.watermark-time-zone": zone}
    table, clock = _table(tmp_path, **options), _clock("2026-02-20T08:00")
    _write(table, clock, "a")
    assert Tags(handle_of(table).io, table.path).names() == []
    # Another writer has committed one, and the next commit keeps it.
    path = Path(handle_of(table).snapshot_store.path(1))
    path.write_text(json.dumps({**json.loads(path.read_text()), "watermark": _clock("2026-01-10T17:00").now}))
    _write(table, clock, "a")
    assert Tags(handle_of(table).io, table.path).names() == [name]


DONE = {"partition.idle-time-to-done": "1 h", "partition.time-interval": "1 d"}


def test_a_stream_marks_partitions_that_are_idle_after_their_time(tmp_path: Path) -> None:
    table, clock = _table(tmp_path, **DONE), _clock("2026-01-10T12:00")
    _write(table, clock, "2026-01-09", "2026-01-10", "no time")
    upkeep, session = _upkeep(table, clock)
    assert upkeep.mark_done(session) == ()
    clock.now += DAY_MS // 24 + 1
    assert upkeep.mark_done(session, hidden=[b"x"]) == ("dt=2026-01-09",)
    first = clock.now
    marked = Path(table.path, "dt=2026-01-09/_SUCCESS")
    assert json.loads(marked.read_text()) == {"creationTime": first, "modificationTime": first}
    clock.now += DAY_MS // 2
    assert upkeep.mark_done(session) == ("dt=2026-01-10",)
    # Another stream finds in the table what has changed since.
    _write(table, clock, "2026-01-09")
    upkeep, session = _upkeep(table, clock)
    clock.now += DAY_MS
    assert upkeep.mark_done(session) == ("dt=2026-01-09",)
    assert json.loads(marked.read_text()) == {"creationTime": first, "modificationTime": clock.now}
    assert table.doctor(rows=True) == []
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()


def test_a_partition_with_rows_that_readers_do_not_see_is_not_marked(tmp_path: Path) -> None:
    table, clock = _table(tmp_path, **DONE), _clock("2026-01-10T12:00")
    _write(table, clock, "2026-01-08")
    upkeep, session = _upkeep(table, clock)
    clock.now += DAY_MS
    hidden = {partition for partition, _ in session.view.buckets()}
    assert upkeep.mark_done(session, hidden=hidden) == ()
    assert upkeep.mark_done(session) == ("dt=2026-01-08",)


class _Receiver(BaseHTTPRequestHandler):
    """A server that takes reports; it answers with what `answers` has next, then with success."""

    answers: ClassVar[list[bytes]] = []
    received: ClassVar[list[dict[str, object]]] = []

    def do_POST(self) -> None:
        self.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        body = self.answers.pop(0) if self.answers else b'{"result": "Success"}'
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        del args


def test_done_partitions_are_reported_to_a_server(tmp_path: Path) -> None:
    """A report that is not accepted is sent again, and the file of the partition says nothing before."""
    with HTTPServer(("127.0.0.1", 0), _Receiver) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        options = {
            "partition.mark-done-action": "success-file,http-report",
            "partition.mark-done-action.http.url": f"http://127.0.0.1:{server.server_port}/done",
            "partition.mark-done-action.http.params": "k=v",
        }
        table, clock = _table(tmp_path, **DONE, **options), _clock("2026-01-10T12:00")
        _write(table, clock, "2026-01-08")
        upkeep, session = _upkeep(table, clock)
        clock.now += DAY_MS
        marked = Path(table.path, "dt=2026-01-08/_SUCCESS")
        _Receiver.answers[:], _Receiver.received[:] = [b'{"result": "failed"}', b"no JSON"], []
        for _ in range(2):
            assert upkeep.mark_done(session) == ()
            assert not marked.exists()
        assert upkeep.mark_done(session) == ("dt=2026-01-08",)
        assert marked.exists()
        name = f"{tmp_path.name}.t"
        sent = {"params": "k=v", "table": name, "path": table.uri, "partition": "dt=2026-01-08/"}
        assert _Receiver.received == [sent] * 3
        _Receiver.answers[:] = [b'{"result": null}']
        with pytest.raises(StorageError, match="partition dt=2026-01-08/ was not accepted"):
            table.mark_done()
        assert table.mark_done() == ("dt=2026-01-08",)
        server.shutdown()


def test_batch_writes_mark_their_partitions_at_the_end_of_their_input(tmp_path: Path) -> None:
    table, clock = _table(tmp_path, **{"partition.end-input-to-done": "true"}), _clock("2026-01-10T12:00")
    _write(table, clock, "a", "b")
    assert Path(table.path, "dt=a/_SUCCESS").exists() and Path(table.path, "dt=b/_SUCCESS").exists()


def test_partitions_are_marked_by_hand(tmp_path: Path) -> None:
    table, clock = _table(tmp_path), _clock("2026-01-10T12:00")
    _write(table, clock, "a", "b/c")
    assert mark_table_done(handle_in(table, clock=clock), [{"dt": "b/c"}]) == ("dt=b%2Fc",)
    assert table.mark_done() == ("dt=a", "dt=b%2Fc")
    with pytest.raises(OptionError, match="holds no partition"):
        table.mark_done([{"dt": "z"}])
    table.set_options({"partition.mark-done-action": "custom"})
    with pytest.raises(OptionError, match="'custom' calls a Java class"):
        open_table(table.path).mark_done()


@pytest.mark.parametrize(
    "options",
    [
        {"partition.idle-time-to-done": "1 h"},
        {**DONE, "partition.mark-done-action": "done-partition"},
        {**DONE, "partition.mark-done-action": "success-file,http-report"},
        {**DONE, "partition.mark-done-action": "mark-event"},
        {**DONE, "partition.mark-done-action": "custom"},
        {**DONE, "partition.mark-done-action": "http-report", "partition.mark-done-action.http.url": "http://h/x"},
        {**DONE, "partition.mark-done-action": "success-file,http-report", "partition.mark-done-action.http.url": "h"},
        {**DONE, "partition.mark-done-action.mode": "watermark"},
        {"partition.timestamp-formatter": "yyyy-MMM"},
        {"tag.creation-delay": "1 d"},
        {"sink.process-time-zone": "Nowhere/Land"},
        {"partition.expiration-batch-size": "0"},
    ],
)
def test_what_cannot_be_done_is_refused_by_name(tmp_path: Path, options: dict[str, str]) -> None:
    with pytest.raises(OptionError) as caught:
        _table(tmp_path, **options)
    assert caught.value.fields["key"] in {*options, "partition.time-interval"}
    assert not (tmp_path / "t").exists()
