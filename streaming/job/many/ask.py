"""Requests to a job of several tables, each about one table. The job carries out the requests with its next batch."""

from bucketline.conf.errors import OptionError
from bucketline.conf.option import did_you_mean
from bucketline.conf.routes.routed_job import RoutedJob
from bucketline.streaming.many.ledger import Ledger
from bucketline.streaming.many.ledger_files import LedgerFiles, TableRequest, Wish, ledger_files


def ask_job(routed: RoutedJob, wish: Wish, table: str) -> None:
    """Stores a request in the job's checkpoint. The job may be running or not. Raises OptionError for a table that the
    job does not know, and for a request to unpark a table that is not parked.
    """
    ledger = newest_ledger(routed)
    known = () if ledger is None else tuple(ledger.tables)
    if ledger is None or table not in ledger.tables:
        raise OptionError(
            f"{table!r} is not a table that this job has written{did_you_mean(table, known)}; `bucketline status "
            "--conf-file` lists the tables",
            key=wish.value,
        )
    if wish is Wish.UNPARK and ledger.tables[table].parked is None:
        raise OptionError(f"{table!r} is not parked", key=wish.value)
    files_of(routed).ask(TableRequest(wish, table))


def files_of(routed: RoutedJob) -> LedgerFiles:
    """Returns the object that reads and writes the ledgers, pins and requests in the job's checkpoint."""
    return ledger_files(routed.common.checkpoint, routed.common.storage)


def newest_ledger(routed: RoutedJob) -> Ledger | None:
    """Returns the newest ledger of a job (the state of its tables); None if the job has no ledger yet."""
    files = files_of(routed)
    numbers = files.numbers()
    return files.read(numbers[-1]) if numbers else None
