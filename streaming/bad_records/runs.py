"""Tells whether an earlier attempt at a batch may have stored bad records and then died before its commit."""

from dataclasses import dataclass

from bucketline.streaming.bad_records.place import BatchName


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of a query. Each start of the query begins a new run. `first` and `newest` are the first and the newest
    batch of this run whose bad records were stored.
    """

    id: str
    first: int
    newest: int


_runs: dict[tuple[str, str, str], _Run] = {}
"""The run of the query that this process saw last, for each place, writer and table."""


def is_begun(place: str, batch: BatchName) -> bool:
    """Returns True if an earlier attempt at a batch may have stored bad records at `place`.

    Only two batches of a run can have an earlier attempt: the first batch, at which the previous run may have
    stopped, and the newest batch, which may be repeated in the same run.
    """
    run = _runs.get((place, batch.user, batch.table))
    return run is None or run.id != batch.run_id or batch.batch_id in (run.first, run.newest)


def note_batch(place: str, batch: BatchName) -> None:
    """Remembers that the bad records of a batch were stored. Does nothing if the id of the query's run is not known."""
    if batch.run_id is None:
        return
    run = _runs.get((place, batch.user, batch.table))
    first = batch.batch_id if run is None or run.id != batch.run_id else run.first
    _runs[place, batch.user, batch.table] = _Run(batch.run_id, first, batch.batch_id)
