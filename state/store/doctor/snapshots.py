"""Checks that all committed snapshots exist, and that hints, tags and consumers refer to existing snapshots. The
findings say what to do.

The checks are made in each folder of metadata: the table's own folder, and the folder of each branch.

Source: Paimon 2.0 SnapshotManager, HintFileUtils, TagManager, ConsumerManager.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

from bucketline.conf.wording import span
from bucketline.state.commit.newest import CutShort, Hint, History, NewestId, Reference, Vanished, newest_of
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.paths import CONSUMER_DIR, EARLIEST, LATEST, MANIFEST_DIR, SNAPSHOT_DIR, TAG_DIR, tag_name
from bucketline.state.store.catalog.consumers import next_of_consumers
from bucketline.state.store.catalog.newest_snapshot import LEFTOVERS_TEXT, cut_short_text, missing_text, read_history
from bucketline.state.store.catalog.snapshots import Snapshots
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.doctor.finding import Finding, Severity
from bucketline.state.store.storage.file_io import FileIO


def snapshot_findings(io: FileIO, root: str) -> Iterator[Finding]:
    """Yields problems with the snapshots below `root`. Tags and consumers that cannot be read are skipped."""
    history = read_history(io, root, all_references=True)
    yield from _newest(root, history)
    yield from _gaps(root, history)
    yield from _hint_too_high(root, history)
    yield from _tags(io, root, history)
    yield from _hints(root, history)
    yield from _consumers(io, root, history)
    yield from _leftovers(io, root, history)


def _newest(root: str, history: History) -> Iterator[Finding]:
    verdict = newest_of(history)
    if isinstance(verdict, Vanished):
        yield Finding(
            Severity.ERROR,
            "missing-snapshot",
            f"{root}/{SNAPSHOT_DIR}",
            missing_text(root, verdict, history.references),
        )
    elif isinstance(verdict, CutShort):
        yield Finding(Severity.ERROR, "rollback", f"{root}/{SNAPSHOT_DIR}", cut_short_text(verdict))
    else:
        # LATEST is higher than these files, and a commit would take their ids.
        yield from (_later(history, r) for r in history.later)


def _later(history: History, reference: Reference) -> Finding:
    newest = history.newest
    way = (
        ""
        if reference.tag is None
        else f", or go to the snapshot that the tag keeps with `rollback_to({reference.tag!r})`"
    )
    return Finding(
        Severity.ERROR,
        "rollback",
        reference.subject,
        f"it refers to snapshot {reference.snapshot_id}, but the newest snapshot is {newest}: a rollback was "
        f"interrupted. Remove it with `rollback_to({newest})`, before a commit takes its id{way}",
    )


def _gaps(root: str, history: History) -> Iterator[Finding]:
    for before, after in pairwise(sorted(history.ids)):
        if after != before + 1:
            way = f"expire the snapshots up to {before}"
            if _id(history.latest) == before:
                way = (
                    "if the table was rolled back or fast-forwarded, remove the snapshots of a late writer with "
                    f"`rollback_to({before})`. Readers and writers take snapshot {before} for the newest one until a "
                    f"commit gets the id {after - 1}; then they take snapshot {after}"
                )
            yield Finding(
                Severity.ERROR,
                "snapshot-gap",
                f"{root}/{SNAPSHOT_DIR}/snapshot-{before + 1}",
                f"no file of {span(before + 1, after - 1, 'snapshot')}, although there are older and newer ones: "
                f"restore the files from a copy, or {way}",
            )


def _hint_too_high(root: str, history: History) -> Iterator[Finding]:
    hinted = _id(history.latest)
    if hinted is not None and hinted > history.newest:
        yield Finding(
            Severity.ERROR,
            "hint",
            f"{root}/{SNAPSHOT_DIR}/{LATEST}",
            f"it says {hinted}, but "
            f"{f'the newest snapshot is {history.newest}' if history.ids else 'there is no snapshot'}: Paimon "
            "believes the hint and fails",
        )


def _hints(root: str, history: History) -> Iterator[Finding]:
    right = {LATEST: history.newest, EARLIEST: min(history.ids, default=0)}
    for name, hint in ((LATEST, history.latest), (EARLIEST, history.earliest)):
        hinted, subject = _id(hint), f"{root}/{SNAPSHOT_DIR}/{name}"
        if hint is not None and hinted is None:
            yield Finding(
                Severity.WARNING, "hint", subject, "it holds no snapshot id, so readers have to list the folder"
            )
        elif hinted is not None and hinted != right[name] and not (name == LATEST and hinted > history.newest):
            known = "a writer could not write it, or a rollback was interrupted before it removed anything"
            why = known if name == LATEST else "an expiry was interrupted"
            text = f"it says {hinted}, but {right[name]} is right: {why}; readers have to list the folder"
            yield Finding(Severity.WARNING, "hint", subject, text)


def _tags(io: FileIO, root: str, history: History) -> Iterator[Finding]:
    """Yields tags whose snapshot differs from the snapshot file with the same id, because the id was used again."""
    snapshots, tags = Snapshots(io, root), Tags(io, root)
    for reference in history.references:
        if reference.tag is None or reference.snapshot_id not in history.ids:
            continue
        with suppress(CorruptFileError):
            tag, own = tags.get(reference.tag), snapshots.get(reference.snapshot_id)
            if tag is None or own is None or own.delta_manifest_list == tag.snapshot.delta_manifest_list:
                continue
            yield Finding(
                Severity.ERROR,
                "tag-history",
                f"{root}/{TAG_DIR}/{tag_name(reference.tag)}",
                f"it is on another snapshot {own.id} than the snapshot that the table has: the table was rolled back "
                "since, and expiry may remove files that the tag needs; copy the rows that are needed, and delete "
                "the tag",
            )


def _consumers(io: FileIO, root: str, history: History) -> Iterator[Finding]:
    with suppress(CorruptFileError):
        for name, following in sorted(next_of_consumers(io, root).items()):
            if following > history.newest + 1:
                yield Finding(
                    Severity.WARNING,
                    "consumer",
                    f"{root}/{CONSUMER_DIR}/consumer-{name}",
                    f"it waits for snapshot {following}, but the newest snapshot is {history.newest}: the table was "
                    f"rolled back or lost snapshots, and the consumer will skip the snapshots before {following}; "
                    "reset the consumer",
                )


def _leftovers(io: FileIO, root: str, history: History) -> Iterator[Finding]:
    if newest_of(history) == NewestId(0) and io.list_names(f"{root}/{MANIFEST_DIR}"):
        yield Finding(Severity.WARNING, "no-snapshot", f"{root}/{SNAPSHOT_DIR}", LEFTOVERS_TEXT)


def _id(hint: Hint | None) -> int | None:
    return None if hint is None else hint.snapshot_id
