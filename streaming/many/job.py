"""The settings of a job of many tables, and the state that a process keeps from batch to batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bucketline.conf.errors import BucketlineError
from bucketline.conf.job import BadRecords
from bucketline.conf.metrics_options import MetricsOptions
from bucketline.conf.routes.route_options import OnTableFailure, Unmatched
from bucketline.streaming.bad_records.place import BadRecordsPlace
from bucketline.streaming.batch.progress import BatchReport
from bucketline.streaming.batch.write_batch import Job
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.many.ledger import Ledger
from bucketline.streaming.many.ledger_files import LedgerFiles
from bucketline.streaming.many.tables import Tables
from bucketline.streaming.tasks.many.split import Resolver


@dataclass(frozen=True, slots=True)
class ManyJob:
    """The settings of a job that hold for all batches and all tables.

    - `routes` finds the table of a record, and `unmatched` says what happens to records that no route takes.
    - `on_failure` says whether the job stops if a table fails, and `commit_parallelism` is how many tables are
      committed at the same time.
    - `nameless` decodes the records that belong to no table, and `bad_records` are the settings for bad records among
      them.
    - `places` returns the place (folder, table or topic) that settings for bad records name; None if they name none.
    - `settings` is the text of all settings that affect rows, and `pin` is the hash of this text.
    - `one` has the settings that a job of one table has, too.
    - `most_missed` is the most records that a formerly parked table reads with each batch to catch up.
    - `metrics` says where metrics are shown, unless the settings of a table say otherwise.
    """

    routes: Resolver
    unmatched: Unmatched
    on_failure: OnTableFailure
    commit_parallelism: int
    nameless: DecodeStep
    bad_records: BadRecords
    places: Callable[[BadRecords], BadRecordsPlace | None]
    pin: str
    settings: str
    one: Job = field(default_factory=Job)
    most_missed: int = 5_000_000
    metrics: MetricsOptions = field(default_factory=MetricsOptions)


@dataclass(slots=True)
class ManyState:
    """The state that a process keeps from batch to batch.

    - `files` are the ledgers in the checkpoint, and `tables` are the open tables.
    - `ledger` is the ledger (the stored states of all tables) after the last batch; None if there is none.
    - `has_looked` is true when the process has looked for the ledger in the checkpoint. Before that, `ledger` means
      nothing.
    - `touched` is the number of tables for which the last batch had records.
    - `tries` is how often this process has tried the current batch, including the present try.
    """

    files: LedgerFiles
    tables: Tables
    ledger: Ledger | None = None
    has_looked: bool = False
    touched: int = 0
    tries: int = 0

    def forget(self) -> None:
        """Drops the open tables and the ledger. Called after an error, when they may be wrong."""
        self.tables.forget_all()
        self.ledger, self.has_looked = None, False


@dataclass(frozen=True, slots=True)
class Told:
    """The result of a batch of many tables: the report of each table, the errors of the tables that failed, and the
    number of records that were left out for each parked table. `is_skipped` is true if the whole batch was written
    before.
    """

    reports: tuple[BatchReport, ...] = ()
    failed: Mapping[str, BucketlineError] = field(default_factory=dict)
    parked_records: Mapping[str, int] = field(default_factory=dict)
    left_out: int = 0
    is_skipped: bool = False
