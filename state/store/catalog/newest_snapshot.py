"""Finds the newest snapshot of a table if the hint LATEST is missing or wrong: from listings, tags, changelogs and
other hints.

Other writers may be active: a hint may be read before it is written, and a listing may be older than a tag. So
everything is read again before a table is refused.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from bucketline.state.commit.newest import CutShort, History, NewestId, Reference, Vanished, newest_of
from bucketline.state.errors import BranchNotFoundError, CorruptFileError, MissingSnapshotError, StorageError
from bucketline.state.format.entries import Snapshot
from bucketline.state.format.json_files.snapshot_json import decode_snapshot
from bucketline.state.format.paths import (
    CHANGELOG_DIR,
    EARLIEST,
    LATEST,
    MANIFEST_DIR,
    SNAPSHOT_DIR,
    TAG_DIR,
    branch_at,
    changelog_name,
    history_of,
    parse_changelog_id,
    parse_snapshot_id,
    parse_tag,
    snapshot_name,
)
from bucketline.state.store.catalog.pins import Notebook
from bucketline.state.store.catalog.snapshot_file import decoded_snapshot, read_hint, read_snapshot
from bucketline.state.store.storage.file_io import FileIO

_LOG = logging.getLogger(__name__)
LEFTOVERS_TEXT = (
    "there are manifests but no snapshot, and nothing shows that a snapshot was committed: the first commit has "
    "failed or is running, or all metadata of snapshots was removed"
)

ROLLED_BACK_TO = "bucketline.rolled-back-to"
"""The property that a rollback adds to the snapshot in its tag. Its value is the id of the snapshot to which the
rollback goes.
"""

_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest snapshot (None for a table without snapshots). `cut_short` is the interrupted rollback to this
    snapshot, if there is one.
    """

    snapshot: Snapshot | None
    cut_short: CutShort | None = None


def find_newest(io: FileIO, root: str) -> Newest:
    """Returns the newest snapshot of the metadata folder `root`. The hint files LATEST and EARLIEST may be wrong; the
    result is right all the same.

    Raises MissingSnapshotError if files of published snapshots are missing, BranchNotFoundError if such files are
    missing because the branch is being deleted, CorruptFileError, StorageError.
    """
    before: CutShort | Vanished | None = None
    for _ in range(_LOOKS):
        history = read_history(io, root)
        verdict = newest_of(history)
        if isinstance(verdict, NewestId):
            snapshot = None if verdict.snapshot_id == 0 else read_snapshot(io, root, verdict.snapshot_id)
            if snapshot is None and verdict.snapshot_id == 0:
                _check_not_going(io, root)
            if snapshot is not None or verdict.snapshot_id == 0:
                _warn_of_leftovers(io, root, snapshot)
                return Newest(snapshot)
        elif verdict == before:
            if isinstance(verdict, Vanished):
                _check_not_going(io, root)
                raise missing_snapshot(root, verdict, history.references)
            snapshot = _target(io, root, verdict)
            if snapshot is not None:
                _warn_once(root, cut_short_text(verdict))
                return Newest(snapshot, verdict)
        before = None if isinstance(verdict, NewestId) else verdict
    raise StorageError(
        (
            f"{root}: the newest snapshot cannot be read: each listing of the folder shows another newest snapshot, or "
            "a snapshot whose file does not exist; try again"
        ),
        path=f"{root}/{SNAPSHOT_DIR}",
        retryable=True,
        missing=False,
    )


def _check_not_going(io: FileIO, root: str) -> None:
    """Raises BranchNotFoundError if `root` is the folder of a branch that is being deleted. This function is called for
    a history whose snapshots are missing. The call costs one listing for a branch, and no request for the table itself.
    """
    table, history = history_of(root)
    if table != root and history in Notebook(io, table).deleted():
        name = branch_at(table, root)
        raise BranchNotFoundError(
            f"{table}: branch '{name}' is being deleted, or its deletion was interrupted, and its snapshots are gone. "
            f"Finish the deletion with `delete_branch('{name}')`, or use another branch",
            path=table,
            branch=name,
        )


def read_history(io: FileIO, root: str, *, all_references: bool = False) -> History:
    """Returns what the files in the folder `root` say about its snapshots. Tags and changelogs are read only if LATEST
    does not name the newest file, or if `all_references` is True. Unreadable tags are skipped.
    """
    directory = f"{root}/{SNAPSHOT_DIR}"
    latest, earliest = read_hint(io, directory, LATEST), read_hint(io, directory, EARLIEST)
    ids = frozenset(i for name in io.list_names(directory) if (i := parse_snapshot_id(name)))
    newest = max(ids, default=0)
    if latest is not None and latest.snapshot_id == newest and not all_references:
        return History(ids, None, latest, earliest)
    time_ms = _time_ms(io, root, newest)
    references = (*_tags(io, root), *_changelogs(io, root, newest))
    late: set[int | None] = {r.snapshot_id for r in references if r.snapshot_id > newest}
    late |= {h.snapshot_id for h in (latest, earliest) if h is not None and (h.snapshot_id or 0) > newest}
    # A listing may be older than a tag or a changelog, so this snapshot is looked up once more.
    unlisted = {i for i in late if i is not None and io.exists(f"{directory}/{snapshot_name(i)}")}
    if unlisted:
        time_ms = _time_ms(io, root, max(unlisted))
    return History(ids | unlisted, time_ms, latest, earliest, references)


def missing_snapshot(root: str, vanished: Vanished, references: Sequence[Reference] = ()) -> MissingSnapshotError:
    """Returns the error for reads and writes of a table whose newest snapshots are missing. Its message names the
    remedies.
    """
    return MissingSnapshotError(
        f"{root}: {missing_text(root, vanished, references)}",
        path=f"{root}/{SNAPSHOT_DIR}",
        snapshot=vanished.snapshot_id,
        newest=vanished.newest or None,
        proof=vanished.proof,
    )


def missing_text(root: str, vanished: Vanished, references: Sequence[Reference] = ()) -> str:
    """Returns a message that says which snapshots are missing, what proves that they existed, and what to do."""
    named = "shows that snapshots" if vanished.snapshot_id is None else f"names snapshot {vanished.snapshot_id}, which"
    verb = "were" if vanished.snapshot_id is None else "was"
    left = f"the newest file is that of snapshot {vanished.newest}" if vanished.newest else "there is no snapshot file"
    gone = f"{vanished.proof} {named} {verb} committed, but {left}"
    ways = [f"restore the files in {root}/{SNAPSHOT_DIR} from a copy"]
    if vanished.newest:
        ways.append(f"give up the missing snapshots by `rollback_to({vanished.newest})`")
    later = (r for r in references if r.tag is not None and r.snapshot_id > vanished.newest)
    tag = max(later, key=lambda r: r.snapshot_id, default=None)
    if tag is not None:
        ways.append(f"go to snapshot {tag.snapshot_id}, which a tag keeps, by `rollback_to({tag.tag!r})`")
    if len(ways) == 1:
        ways.append("create the table again elsewhere")
    return f"{gone}. So the newest state is neither read nor written. Either {'; or '.join(ways)}"


def cut_short_text(cut_short: CutShort) -> str:
    """Returns the message about an interrupted rollback."""
    return (
        f"a rollback to {cut_short.target!r} was interrupted; snapshot {cut_short.snapshot_id} is the newest, and the "
        f"next write removes the snapshots after it, as `rollback_to({cut_short.target!r})` does"
    )


def _target(io: FileIO, root: str, cut_short: CutShort) -> Snapshot | None:
    if cut_short.tag is None:
        return read_snapshot(io, root, cut_short.snapshot_id)
    path = f"{root}/{TAG_DIR}/tag-{cut_short.tag}"
    return decoded_snapshot(path, io.read_optional(path), cut_short.snapshot_id)


def _time_ms(io: FileIO, root: str, snapshot_id: int) -> int | None:
    """Returns the time at which a snapshot was committed; None if the snapshot cannot be read."""
    try:
        snapshot = read_snapshot(io, root, snapshot_id) if snapshot_id else None
    except CorruptFileError:
        return None
    return None if snapshot is None else snapshot.time_ms


def _tags(io: FileIO, root: str) -> Iterator[Reference]:
    for file in io.list_names(f"{root}/{TAG_DIR}"):
        name = parse_tag(file)
        if name is not None:
            yield from _reference(io, f"{root}/{TAG_DIR}/{file}", f"tag {name}", name)


def _changelogs(io: FileIO, root: str, newest: int) -> Iterator[Reference]:
    """Yields references to the changelogs of snapshots after the snapshot `newest`."""
    folder = f"{root}/{CHANGELOG_DIR}"
    names = io.list_names(folder)
    for snapshot_id in sorted(i for name in names if (i := parse_changelog_id(name)) and i > newest):
        name = changelog_name(snapshot_id)
        read = list(_reference(io, f"{folder}/{name}", f"changelog file {name}", None))
        yield from read or [Reference(f"changelog file {name}", snapshot_id)]
    hint = read_hint(io, folder, LATEST) if LATEST in names else None
    if hint is not None and hint.snapshot_id is not None and hint.snapshot_id > newest:
        yield Reference("the changelogs' hint LATEST", hint.snapshot_id)


def _reference(io: FileIO, path: str, subject: str, tag: str | None) -> Iterator[Reference]:
    data = io.read_optional(path)
    if data is None:
        return
    # A tag that cannot be read is skipped; `doctor` reports it.
    with suppress(CorruptFileError):
        snapshot = decode_snapshot(data)
        yield Reference(subject, snapshot.id, snapshot.time_ms, tag, rolled_back_to(snapshot))


def rolled_back_to(marked: Snapshot) -> int | None:
    """Returns the id of the snapshot to which a rollback goes. `marked` is the snapshot in the tag that the rollback
    has made. Returns None if the tag was not made by a rollback, or by a rollback of an earlier release, which did not
    record the target.
    """
    target = marked.properties.get(ROLLED_BACK_TO, "")
    return int(target) if target.isascii() and target.isdigit() else None


def _warn_of_leftovers(io: FileIO, root: str, newest: Snapshot | None) -> None:
    if newest is None and io.list_names(f"{root}/{MANIFEST_DIR}"):
        _warn_once(root, LEFTOVERS_TEXT)


@cache
def _warn_once(root: str, text: str) -> None:
    _LOG.warning("%s: %s", root, text)
