"""Finds a batch that an earlier process began with other settings: some tables may hold rows made by those settings."""

from bucketline.conf.routes.routed_job import Resolved
from bucketline.state.store.write.table_at import table_at
from bucketline.streaming.batch.history import read_history
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.target import Target
from bucketline.streaming.many.job import ManyJob, ManyState


def begun_otherwise(job: ManyJob, state: ManyState, identity: BatchIdentity) -> str | None:
    """The settings that the batch must be finished with. None if the job's own settings may be used: the batch was
    begun with the same settings, or no table holds it yet. Only the first batch of a process asks.
    """
    if state.has_looked:
        return None
    pin = state.files.read_pin(identity.batch_id)
    if pin is None or pin.hash == job.pin or pin.digest != identity.digest:
        return None
    if state.files.read(identity.batch_id) is not None:
        return None
    is_begun = any(_holds(state, name, route, identity) for name, route in pin.tables.items())
    return pin.settings if is_begun else None


def _holds(state: ManyState, name: str, route: int, identity: BatchIdentity) -> bool:
    """Whether a table has a snapshot of the batch."""
    opener = state.tables.opener
    config = opener.config(Resolved(route, name))
    handle = opener.open(config, None, may_create=False)
    if handle is None:
        return False
    _, history = read_history(Target(table_at(handle, opener.options(config)), state.tables.user).refreshed())
    return any(s.commit_identifier == identity.batch_id for s in history.known)
