"""Makes the outcome of a batch for one table. The outcome combines what the reading tasks have noted about the
records, and what the writing tasks have returned, such as commit messages.
"""

import pickle
from collections.abc import Sequence
from dataclasses import replace

from bucketline.conf.errors import BucketlineError
from bucketline.state.commit.message import decode_messages
from bucketline.state.store.commit.discard import discarded_on_error
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.engine.engine import Outcome
from bucketline.streaming.tasks.many.table_notes import TableNote
from bucketline.streaming.tasks.outcome import read_outcome
from bucketline.streaming.tasks.wire import ERROR, MESSAGES, TaskResult


def outcome_of(results: Sequence[TaskResult], note: TableNote, access: BucketAccess) -> Outcome:
    """Returns the outcome of a table. If a task could not write the table, the files of the other tasks are removed and
    the task's error is raised. `access` says where the files of the table are.
    """
    errors = [pickle.loads(r.payload) for r in results if r.kind == ERROR]
    if errors:
        with discarded_on_error(access) as messages:
            messages += [m for r in results if r.kind == MESSAGES for m in decode_messages(r.payload)]
            first = min(errors, key=str)
            assert isinstance(first, BucketlineError), "tasks send only bucketline's own errors"
            raise first
    made = read_outcome(results, access)
    return replace(
        made,
        rejects=(*note.rejects, *made.rejects),
        need=note.need,
        truncated=note.seen.truncated,
        moves=note.seen.moves,
        skipped_records=tuple(sorted((kind.value, count) for kind, count in note.seen.skipped.items())),
        source_tables=tuple(sorted(note.seen.tables)),
        unexpected=tuple(sorted(note.seen.unexpected.items())),
        mixed=tuple(sorted((*note.mixed, *made.mixed))),
    )
