"""Removes what dead processes have left: pins (files that keep snapshots from being removed), announcements of
removals, and branches whose removal was not completed. The next process that removes files calls this module.
"""

import logging

from bucketline.state.determinism import World
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.forwarding import unfinished
from bucketline.state.store.catalog.pins import Notebook, Notes
from bucketline.state.store.storage.file_io import FileIO

_LOG = logging.getLogger(__name__)


def look_and_drop_left(io: FileIO, notebook: Notebook, world: World, own: str | None = None) -> Notes:
    """Returns the files by which all processes tell each other about snapshots: pins (which keep snapshots from
    removal), announced removals, and notes about deleted branches. The file `own` is left out.

    Files that are an hour old are removed, and not returned, because their process has died. Before that, branches
    whose removal has begun are removed completely, whatever the age of the file.
    """
    notes = notebook.look(own)
    Branches(io, notebook.table).finish_removals(notes, world)
    left = notebook.left([*notes.pins, *notes.removals, *notes.deleted], world)
    died = [notes.pins[name] for name in left if name in notes.pins]
    for branch in sorted(unfinished(io, notebook.table, died)) if died else ():
        _LOG.warning(
            "%s: a fast-forward to branch '%s' was interrupted, and the table may have only a part of the branch; "
            "repeat it with fast_forward('%s')",
            notebook.table,
            branch,
            branch,
        )
    for name in left:
        notebook.drop(name)
    if not left:
        return notes
    return Notes(
        {name: pin for name, pin in notes.pins.items() if name not in left},
        {name: removal for name, removal in notes.removals.items() if name not in left},
        {name: removal for name, removal in notes.deleted.items() if name not in left},
    )
