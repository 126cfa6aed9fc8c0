"""Replays the bad records of a job of several tables: decodes each bad record again and writes its rows through the
routes of the job, once. A replay writes in its own batches.

The current routes and settings of the job decide to which table a record goes. A folder next to the job's checkpoint
holds the name of the job's replays, and a ledger (a file with the state of the tables) for each batch of the replays.
By the name of the replays and the number of a batch, tables recognise a batch that is repeated.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.job import JobConfig, Setting
from bucketline.conf.option import UNLIMITED
from bucketline.conf.routes.route_options import ON_TABLE_FAILURE, UNMATCHED, OnTableFailure, Unmatched
from bucketline.conf.routes.routed_job import RoutedJob, routed_job
from bucketline.conf.sink_options import BAD_RECORDS_MAX, KEY_ORDER
from bucketline.state.determinism import SystemIds
from bucketline.streaming.bad_records.folder import folder_name
from bucketline.streaming.bad_records.replays import Replay, Replayed, up_to
from bucketline.streaming.bad_records.stored import StoredRecords
from bucketline.streaming.bad_records.topic_notes import BESIDE
from bucketline.streaming.batch.failure import SparkLog, explained
from bucketline.streaming.batch.write_batch import Job
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.job.bad_place import has_place, places_of
from bucketline.streaming.job.ending import Ending
from bucketline.streaming.job.many.ask import newest_ledger
from bucketline.streaming.job.many.pin import with_pinned
from bucketline.streaming.job.many.run import check_routed, many_job
from bucketline.streaming.job.many.sink import ManySink
from bucketline.streaming.job.many.table_opener import JobTableOpener
from bucketline.streaming.job.open_session import open_session
from bucketline.streaming.job.replay import check_places, newest_batch, records_frame, replayed_identity, warn_of_order
from bucketline.streaming.job.run import SESSION_ZONE
from bucketline.streaming.job.start.silence import broken_silence
from bucketline.streaming.job.stored_places import look_for_topics, stored_records
from bucketline.streaming.many.entries import route_of
from bucketline.streaming.many.job import ManyJob, ManyState
from bucketline.streaming.many.ledger import Entry, Ledger
from bucketline.streaming.many.ledger_files import LedgerFiles, ledger_files
from bucketline.streaming.many.tables import Tables

_NAME = "name"
_ORIGIN = "--replay"


def replay_routed(
    routed: RoutedJob, ending: Ending, spark: Any | None = None, log: SparkLog = SparkLog.OURS_ONCE
) -> Replayed:
    """Replays the bad records of a job of several tables, and returns how many were replayed. Raises OptionError if
    they cannot be replayed, and the errors of `run_routed`.
    """
    job = as_replayed(routed)
    check_routed(job)
    files = ReplayFiles.of(job.common)
    user = files.user()
    common = job.common
    with broken_silence("waiting for Kafka") as silence:
        look_for_topics(places_of(job), spark, silence)
    with (
        explained(),
        broken_silence("replaying bad records") as silence,
        open_session("bucketline replay", spark, ending, log, silence) as session,
    ):
        registry = None if common.registry is None else RegistrySchemas(common.registry, SystemIds().new_uuid())
        opener_of = partial(JobTableOpener, zone=session.conf.get(SESSION_ZONE), registry=registry, has_headers=True)

        many, tables, warned = replay_job(job, registry), Tables(opener_of(job), user), set[str]()

        def write(rows: pa.Table, number: int) -> None:
            own = files.of_batch(number)

            def pinned(text: str, writer: str) -> tuple[ManyJob, ManyState]:
                begun = with_pinned(job, text)
                return replay_job(begun, registry), ManyState(own, Tables(opener_of(begun), writer))

            sink = ManySink(many, lambda _: ManyState(own, tables), pinned)
            try:
                sink.write(records_frame(session, rows), replayed_identity(user, number))
            finally:
                sink.stop()
            for known in tables.all():
                if known.name not in warned:
                    warn_of_order(known.target.at.table)
                    warned.add(known.name)
            files.forget(number - 1)

        try:
            stored = [stored_records(session, config) for config in places_of(job) if has_place(config)]
            places = [place for place in stored if place is not None]
            return replay_of(job, opener_of(job), files, write, places).run(lambda: ending.asked_by is not None)
        finally:
            if registry is not None:
                registry.forget()


def replay_of(
    job: RoutedJob,
    opener: JobTableOpener,
    files: "ReplayFiles",
    write: Callable[[pa.Table, int], None],
    places: Sequence[StoredRecords],
) -> Replay:
    """Returns the replay of a job. `job` has the settings that `as_replayed` returns. `write` takes rows and the number
    of a batch, and writes the rows as this batch of the replay. `places` are the places (folders, tables, topics) in
    which the job stores bad records.
    """
    user = files.user()
    own = OwnRecords(opener, newest_ledger(job), files, user)
    return Replay(
        user,
        places,
        own=own.of_this_job,
        written=own.written,
        newest=files.newest(),
        write=write,
    )


def as_replayed(routed: RoutedJob) -> RoutedJob:
    """Returns the settings of the job, changed for a replay of its bad records: any number of records may be bad again,
    and a table that fails ends the replay.

    Raises the errors of `check_places`.
    """
    check_places([config.bad_records for config in places_of(routed)])
    dropped = (BAD_RECORDS_MAX.key, KEY_ORDER.key, UNMATCHED.key, ON_TABLE_FAILURE.key)
    settings = {key: setting for key, setting in routed.settings.items() if not key.endswith(dropped)}
    tops = {key.rpartition("bad-records.")[0] for key in settings if "bad-records." in key}
    settings |= {f"{top}{BAD_RECORDS_MAX.key}": Setting(str(UNLIMITED), _ORIGIN) for top in tops}
    # A record that has no route any more must not be skipped, because it is stored nowhere else.
    unmatched = Unmatched.BAD_RECORD if routed.common.bad_records.has_place else Unmatched.FAIL
    settings[UNMATCHED.key] = Setting(unmatched.value, _ORIGIN)
    settings[ON_TABLE_FAILURE.key] = Setting(OnTableFailure.STOP.value, _ORIGIN)
    return routed_job(settings)


def replay_job(job: RoutedJob, registry: RegistrySchemas | None = None) -> ManyJob:
    """Returns the settings with which a replay writes bad records into several tables. Each batch of a replay is
    checked by itself: a table need not show that it has the batch before, because a replay's ledger (the state of the
    tables) knows only one batch.
    """
    return many_job(job, Job(allow_reprocess=True), registry)


@dataclass(frozen=True, slots=True)
class ReplayFiles:
    """The folder with the files of a job's replays. It is next to the job's checkpoint, so it stays when the checkpoint
    is renamed.
    """

    files: LedgerFiles

    @classmethod
    def of(cls, common: JobConfig) -> "ReplayFiles":
        return cls(ledger_files(f"{common.checkpoint.rstrip('/')}{BESIDE}", common.storage))

    def user(self) -> str:
        """Returns the commit user of the job's replays: a random name, which the first replay stores."""
        path, io = f"{self.files.root}/{_NAME}", self.files.io
        said = io.read_optional(path)
        if said is None:
            io.publish(path, f"replay-{SystemIds().new_uuid()}".encode())
            said = io.read(path)
        return said.decode()

    def of_batch(self, number: int) -> LedgerFiles:
        return replace(self.files, root=f"{self.files.root}/{number}")

    def newest(self) -> int | None:
        """Returns the number of the newest batch of the replay that all tables have; None if there is no such batch."""
        numbers = sorted((int(n) for n in self.files.io.list_names(self.files.root) if n.isdigit()), reverse=True)
        return next((number for number in numbers if self.of_batch(number).read(number) is not None), None)

    def forget(self, number: int) -> None:
        """Removes the ledger (state of the tables) and the pin (settings) of a batch of the replay. Called after a
        later batch was written.
        """
        root, io = self.of_batch(number).root, self.files.io
        for name in (f"pins/{number}", f"ledger/{number}"):
            io.delete(f"{root}/{name}")


@dataclass(frozen=True, slots=True)
class OwnRecords:
    """Decides which of the stored bad records belong to a job, and up to which batch they can be replayed. `ledger` is
    the job's newest ledger (the stored state of its tables), and `user` is the commit user of its replays.
    """

    opener: JobTableOpener
    ledger: Ledger | None
    replays: ReplayFiles
    user: str
    _known: dict[tuple[str, str], int | None] = field(default_factory=dict)

    def of_this_job(self, rows: pa.Table) -> pa.Table:
        """Returns the bad records in `rows` that belong to the job. A bad record belongs to the job if it is for one of
        the job's tables, or if the job or one of its replays has stored it.
        """
        names = pa.array([*self._tables], pa.string())
        is_own = pc.fill_null(pc.is_in(rows["table_name"], value_set=names), False)
        for writer in (self.user, *self._queries()):
            # A table that catches up has a writer of its own, whose name begins with the name of the query.
            is_own = pc.or_(is_own, pc.starts_with(rows["query_id"], writer))
        return rows.filter(is_own)

    def written(self, rows: pa.Table) -> pa.Table:
        """Returns the bad records whose batches are known to be written completely."""
        tables, replayed = self._tables, self.replays.newest()

        def newest(writer: str, table: str | None) -> int | None:
            name = None if table is None else tables.get(table)
            return replayed if writer == self.user else self._newest(writer, name)

        return up_to(rows, newest)

    def _newest(self, writer: str, name: str | None) -> int | None:
        """Returns the number of a writer's newest batch that is known to be written to the table `name`; None if no
        such batch is known.
        """
        if self.ledger is not None and writer.startswith(tuple(self._queries())):
            return self.ledger.batch
        if name is None:
            return None
        if (writer, name) not in self._known:
            self._known[writer, name] = self._in_table(writer, name)
        return self._known[writer, name]

    @property
    def _tables(self) -> Mapping[str, str]:
        """Returns a dict in which the name of each table of the job can be looked up, by two keys: the name itself, and
        the name of the folder with the table's bad records.
        """
        known = () if self.ledger is None else tuple(self.ledger.tables)
        return {**{folder_name(name): name for name in known}, **{name: name for name in known}}

    def _queries(self) -> Iterator[str]:
        if self.ledger is not None and self.ledger.query:
            yield self.ledger.query

    def _in_table(self, writer: str, name: str) -> int | None:
        assert self.ledger is not None, "it knows the table"
        entry: Entry = self.ledger.tables[name]
        to = route_of(name, entry, self.opener.resolve)
        config = None if to is None else self.opener.config(to)
        handle = None if config is None else self.opener.open(config, None, may_create=False)
        if config is None or handle is None:
            return None
        return newest_batch(handle, self.opener.options(config), writer)
