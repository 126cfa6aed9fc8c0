"""A table with a past: commits of every kind from one seed, and what must hold of the snapshots that are kept."""

import random
from dataclasses import replace

from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.format.data_file import EMPTY_ROW, DataFileMeta
from bucketline.state.format.entries import CommitKind, FileKind, IndexManifestEntry, Snapshot
from bucketline.state.format.paths import INDEX_DIR, MANIFEST_DIR
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.kept_files import data_paths
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.storage.file_io import FileIO
from tests.support.tables.commit_table import CommitTable
from tests.support.tables.commits import data_file

SECOND_MS = 1000


def aged_table(seed: int, commits: int, options: dict[str, str] | None = None) -> CommitTable:
    """A table after that many commits, a second apart, with manifests that are merged every few commits.

    They append, rewrite, upgrade and overwrite data files, and some bring changelogs and index files.
    """
    chance = random.Random(seed)
    table = CommitTable(options={"manifest.merge-min-count": "3", **(options or {})}).create()
    for number in range(1, commits + 1):
        table.pause.clock.now += SECOND_MS
        overwrite = chance.random() < 0.1
        messages = [_message(table, chance, number, bucket, overwrite=overwrite) for bucket in (0, 1)]
        outcome = table.committer().commit(
            table.put_files(messages),
            user="u",
            identifier=number,
            kind=CommitKind.OVERWRITE if overwrite else CommitKind.APPEND,
            overwrite=(lambda partition: True) if overwrite else None,
        )
        assert isinstance(outcome, Committed) and outcome.dropped is None, outcome
    return table


def _message(table: CommitTable, chance: random.Random, number: int, bucket: int, *, overwrite: bool) -> CommitMessage:
    """Each bucket has level-0 files and at most one file on each of levels 1 and 5, over all keys."""
    name = f"{number}-{bucket}"
    found = CommitMessage(EMPTY_ROW, bucket, 2, new_files=(replace(data_file(f"data-{name}.parquet"), extra_files=()),))
    if chance.random() < 0.3 and not overwrite:
        found = replace(found, changelog_files=(data_file(f"changelog-{name}.parquet"),))
    if overwrite:
        return found
    live: list[DataFileMeta] = [e.file for e in table.live() if e.bucket == bucket]
    low, top = [f for f in live if f.level == 0], [f for f in live if f.level == 5]
    roll = chance.random()
    if roll < 0.3 and len(low) > 1:
        merged = data_file(f"data-{name}-c.parquet", level=5)
        found = replace(found, compact_before=(*low, *top), compact_after=(merged,))
    elif roll < 0.5 and low and not top:
        # An upgrade: the same file under its name, on another level.
        found = replace(found, compact_before=(low[0],), compact_after=(low[0].upgraded(5),))
    if chance.random() < 0.3:
        newest = table.snapshots.latest()
        old = [] if newest is None else table.manifests.read_index(newest.index_manifest)
        entry = IndexManifestEntry(FileKind.ADD, EMPTY_ROW, bucket, "HASH", f"index-{name}", 5, 1)
        found = replace(
            found,
            new_index_files=(entry,),
            deleted_index_files=tuple(replace(e, kind=FileKind.DELETE) for e in old if e.bucket == bucket),
        )
    return found


def needed_files(table: CommitTable, io: FileIO, snapshot: Snapshot, *, changelog: bool) -> set[str]:
    """Full paths of all files a state names; reading them fails where one that leads to others is missing."""
    manifests = table.manifests
    lists = [snapshot.base_manifest_list, snapshot.delta_manifest_list]
    entries = manifests.live_entries(snapshot)
    if changelog and snapshot.changelog_manifest_list is not None:
        lists.append(snapshot.changelog_manifest_list)
        entries += manifests.changelog_entries(snapshot)
    names = {*lists, *(m.file_name for name in lists for m in manifests.read_list(name))}
    if snapshot.index_manifest is not None:
        names.add(snapshot.index_manifest)
    found = {f"{table.path}/{MANIFEST_DIR}/{n}" for n in names}
    found |= {p for e in entries for p in data_paths(table.path, table.schema, e)}
    found |= {f"{table.path}/{INDEX_DIR}/{e.file_name}" for e in manifests.read_index(snapshot.index_manifest)}
    return found


def kept_states(table: CommitTable, oldest: int = 0) -> list[tuple[Snapshot, bool]]:
    """Snapshots from an id on, all tags and all branches; with whether the changelog is theirs too."""
    io = table.storage
    states = [(s, True) for s in table.all_snapshots() if s.id >= oldest]
    states += [(t.snapshot, False) for t in Tags(io, table.path).list()]
    states += [(s, name.startswith("snapshot ")) for name, s in Branches(io, table.path).states()]
    return states


Named = dict[tuple[str | None, ...], set[str]]
"""The files that states name, by their manifest lists."""


def assert_whole(table: CommitTable, oldest: int = 0, known: Named | None = None) -> set[str]:
    """Every kept state has all its files; the paths of them all.

    `known` keeps what states name for further calls, with this table or copies of it: a file of a name never changes.
    """
    needed: set[str] = set()
    known = {} if known is None else known
    for state, changelog in kept_states(table, oldest):
        lists = (state.base_manifest_list, state.delta_manifest_list, state.index_manifest)
        key = (*lists, state.changelog_manifest_list if changelog else None)
        if key not in known:
            known[key] = needed_files(table, table.storage, state, changelog=changelog)
        files = known[key]
        missing = sorted(f for f in files if not table.storage.exists(f))
        assert missing == [], f"snapshot {state.id}"
        needed |= files
    return needed


def stored_files(table: CommitTable) -> set[str]:
    """The files on disk that some state ought to name: data, manifests, index files."""
    folders = ("manifest", INDEX_DIR, "bucket-0", "bucket-1")
    return {f.path for folder in folders for f in table.storage.list_files(f"{table.path}/{folder}")}
