"""The open tables of a job in this process: the number of each table, and how tasks read the table's records.

A table gets its number when it is opened, and keeps it as long as the process lives. What tasks need to know in order
to read a table is packed when the table is opened, and again when its schema or settings change. So a batch costs
nothing for a table that has no records in the batch.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.conf.job import JobConfig
from bucketline.conf.routes.route import case_variant
from bucketline.conf.routes.routed_job import Left, Resolved
from bucketline.state.errors import TableNotFoundError
from bucketline.state.lsm.merge.engines import merging_of
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.engine.engine import Outcome
from bucketline.state.store.write.stages import Stages
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_plan import ONE_WORKER
from bucketline.streaming.batch.async_compaction import async_tables, finish_async, stop_async
from bucketline.streaming.batch.conform import fit_decoder
from bucketline.streaming.batch.finish import finish_stream
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.key_order import policy_of
from bucketline.streaming.batch.make_visible import hidden_rows
from bucketline.streaming.batch.plan import plan_batch, plan_emptied
from bucketline.streaming.batch.target import Target
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.moves.key_moves import Asking, FoundValues
from bucketline.streaming.many.birth import birth_of
from bucketline.streaming.many.entries import route_of
from bucketline.streaming.many.ledger import Entry
from bucketline.streaming.many.side_by_side import side_by_side
from bucketline.streaming.metrics.outlets import open_outlets
from bucketline.streaming.tasks.many.packing import packed
from bucketline.streaming.tasks.many.read_tables import KnownTables, TableReading
from bucketline.streaming.tasks.many.split import Origin
from bucketline.streaming.tasks.read_task import Frame, Records
from bucketline.streaming.tasks.spark_engine import SparkEngine

_LOG = logging.getLogger("bucketline.many")
_ONE_BATCH = BatchIdentity("", 0, None, None, None)


class TableOpener(Protocol):
    """Finds, opens and creates the tables of a job. `at_once` is the number of tables that threads may open at the same
    time.
    """

    @property
    def at_once(self) -> int: ...

    def resolve(self, origin: Origin) -> Resolved | Left:
        """Returns the table to which records of an origin (source table and topic) go. Returns a Left with the reason
        if the records go to no table.
        """
        ...

    def config(self, to: Resolved) -> JobConfig:
        """Returns the settings for the table `to`, as a job that writes only this table would have them."""
        ...

    def open(self, config: JobConfig, sample: pa.Table | None, *, may_create: bool) -> TableHandle | None:
        """Returns the table. If the table is missing, creates the table from its settings or from its first records
        (`sample`); if `may_create` is false, returns None instead. Raises BucketlineError for a table that cannot be
        used or created.
        """
        ...

    def options(self, config: JobConfig) -> Mapping[str, str]:
        """Returns the options of the table's sink."""
        ...

    def step(self, config: JobConfig, table: TableHandle) -> DecodeStep:
        """Returns the step that turns the table's records into rows. (The step gets no records of other tables.)"""
        ...


@dataclass(frozen=True, slots=True)
class Opened:
    """A table that was opened, and is not yet among the tables of the job. The fields mean the same as in `Known`."""

    to: Resolved
    config: JobConfig
    target: Target
    step: DecodeStep
    birth: str


@dataclass(slots=True)
class Known:
    """An open table. `target` is the state of the table after its last batch, `step` decodes the table's records, and
    `birth` is the hash of the table's first schema. `reading` says how tasks read the table's records.
    """

    number: int
    to: Resolved
    config: JobConfig
    target: Target
    step: DecodeStep
    birth: str
    reading: TableReading | None = None

    @property
    def name(self) -> str:
        return self.to.table

    def stages(
        self, target: Target, identity: BatchIdentity, moves: Asking | FoundValues | None = None
    ) -> Stages[Records]:
        """Returns the stages that write a batch's rows into the table in its current state. `moves` is set if records
        change the keys of rows and leave out values: it has either the old keys whose rows tasks must send to the
        driver, or the values that tasks must put in. Raises the errors of `fit_decoder`.
        """
        source = Frame(None, fit_decoder(replace(self.step, moves=moves), target.at))
        return target.at.plan.mode.by_owner(plan_batch(target, identity, source, ONE_WORKER))

    def emptying(
        self, target: Target, truncated: Outcome, moves: Asking | FoundValues | None = None
    ) -> Stages[Records]:
        """Returns the stages that write a batch in which the source's table was truncated. The stages replace all rows
        of the table by the rows that come after the last truncate. `truncated` is the outcome of reading the batch; it
        has the offsets of the truncates. `moves` means the same as in `stages`. Raises the errors of `fit_decoder`.
        """
        source = Frame(None, fit_decoder(replace(self.step, moves=moves), target.at))
        stages = plan_emptied(target, source, truncated, ONE_WORKER)
        return target.at.plan.mode.replacing(target.at.plan).by_owner(stages)

    def reading_of(self, stages: Stages[Records]) -> TableReading:
        """Returns the settings with which tasks decode the records of this table and send the rows to the tasks that
        write. `stages` are the steps of the table in this batch.
        """
        source = stages.source
        assert isinstance(source, Frame) and isinstance(source.decode, DecodeStep), "records are decoded"
        plan = self.target.at.plan
        looks = policy_of(plan, source.decode) is not None and merging_of(plan.schema).order_matters()
        return TableReading(
            stages.seal,
            stages.assigners,
            self.number,
            source.decode,
            source.reject_limit or 1,
            looks,
        )


@dataclass(slots=True)
class Tables:
    """The open tables of a job, which commits to all of them under one commit user."""

    opener: TableOpener
    user: str
    _known: dict[str, Known] = field(default_factory=dict)
    _packed: dict[int, bytes] = field(default_factory=dict)
    _by_number: dict[int, Known] = field(default_factory=dict)
    _told: KnownTables | None = None
    _next: int = 0

    def get(self, name: str) -> Known | None:
        return self._known.get(name)

    def by_path(self) -> dict[str, Known]:
        """Returns the open tables by their paths."""
        return {known.target.at.table.path: known for known in self._known.values()}

    def numbered(self, number: int) -> Known:
        return self._by_number[number]

    def opened(self, to: Resolved, sample: Sequence[pa.Table], *, is_known: bool) -> Opened:
        """Opens the table of the route `to`. A missing table is created if the job's settings say so, unless the job
        has written the table before (`is_known`). `sample` are the first records for the table. Several threads may
        call this.

        Raises TableNotFoundError if a table that the job has written is missing, and the errors for a table that cannot
        be created or written.
        """
        config = self.opener.config(to)
        records = pa.concat_tables(sample) if sample else None
        handle = self.opener.open(config, records, may_create=not is_known)
        if handle is None:
            raise TableNotFoundError(
                f"{to.table}, which this job has written, no longer exists. Restore it; or run `ingest --forget "
                f"{to.table}` once: the job then creates it again, or leaves it out",
                path=to.table,
            )
        return self._opened(to, handle, config)

    def found(self, name: str, entry: Entry) -> Opened | None:
        """Opens a table that the job knows, with the settings of the route that takes the table's records. Returns None
        if the table is missing, or if no route takes its records. Raises the errors of `opened`.
        """
        to = route_of(name, entry, self.opener.resolve)
        if to is None:
            return None
        config = self.opener.config(to)
        handle = self.opener.open(config, None, may_create=False)
        return None if handle is None else self._opened(to, handle, config)

    def _opened(self, to: Resolved, handle: TableHandle, config: JobConfig) -> Opened:
        at = table_at(handle, self.opener.options(config), is_stream=True)
        at.table.io.require_publish()
        return Opened(to, config, Target(at, self.user), self.opener.step(config, handle), birth_of(handle))

    def reopened(self, name: str, entry: Entry) -> Known | None:
        """Opens a table as `found` does, and adds the table to the open tables. Returns None if the table is missing,
        or if no route takes its records.
        """
        opened = self.found(name, entry)
        return None if opened is None else self.add(opened)

    def add(self, opened: Opened) -> Known:
        """Adds a table to the open tables, and returns it. Raises OptionError if an open table has the same name except
        for upper and lower case. Also raises OptionError for a bucket mode that a job of several tables cannot write.
        """
        name = opened.to.table
        variant = case_variant(self._known, name)
        if variant is not None:
            raise OptionError(
                f"the tables {name!r} and {variant!r} differ in upper and lower case only, and some storages do not "
                "distinguish such names; add a route that gives one of the two tables another name",
                key="table",
            )
        open_outlets(opened.target.at.plan.sink.metrics)
        known = Known(self._next, opened.to, opened.config, opened.target, opened.step, opened.birth)
        self.fit(known, known.stages(known.target, _ONE_BATCH))
        self._next += 1
        self._known[name] = self._by_number[known.number] = known
        return known

    def fit(self, known: Known, stages: Stages[Records]) -> bool:
        """Stores how tasks must read the records of the table `known` if these stages are to write them. Returns True
        if this differs from what was stored before: then tasks have to read the records of the batch again.
        """
        reading = known.reading_of(stages)
        if reading == known.reading:
            return False
        known.reading = reading
        self._packed[known.number] = packed(reading)
        self._told = None
        return True

    def forget(self, name: str) -> None:
        """Closes a table. The next batch with records for the table opens it again."""
        known = self._known.pop(name, None)
        if known is not None:
            del self._by_number[known.number], self._packed[known.number]
            self._told = None

    def forget_all(self) -> None:
        for name in list(self._known):
            self.forget(name)

    def told(self, parked: frozenset[str]) -> KnownTables:
        """Returns what tasks must know about the tables: the number of each table, and how its records are read.
        `parked` are the tables whose records tasks leave out. Returns the same object as before if nothing has changed.
        """
        if self._told is None or self._told.parked != parked:
            numbers = {name: known.number for name, known in self._known.items()}
            self._told = KnownTables(numbers, dict(self._packed), parked)
        return self._told

    def all(self) -> list[Known]:
        return [self._known[name] for name in sorted(self._known)]

    def finish(self, engine: SparkEngine, threads: int = 1, is_ending: Callable[[], bool] = lambda: False) -> int:
        """Does the compactions that are still due after the last batch, for `threads` tables at a time. Returns the
        number of rows that readers still do not see.

        The call waits for asynchronous compactions until `is_ending` returns true. Raises CompactionFailedError if one
        of them has failed.
        """

        def finished(known: Known) -> int:
            finish_async(known.target.at.table.metadata_path, self.user, is_ending)
            try:
                known.target = finish_stream(known.target, engine)
                return hidden_rows(known.target).rows
            except BucketlineError as e:
                _LOG.warning(
                    "%s: compactions that are still due have failed; the next start repeats them: %s", known.name, e
                )
                return 0

        written = [known for known in self.all() if known.target.at.view.snapshot is not None]
        left = 0
        for done in side_by_side([partial(finished, known) for known in written], threads):
            if isinstance(done, Exception):
                raise done
            left += done
        return left

    def stop(self) -> None:
        """Ends the asynchronous compaction of all tables at the same time, as `TableSink.stop` does for one table."""
        paths = async_tables(self.user)
        for done in side_by_side([partial(stop_async, path, self.user) for path in paths], len(paths)):
            if isinstance(done, Exception):
                raise done
