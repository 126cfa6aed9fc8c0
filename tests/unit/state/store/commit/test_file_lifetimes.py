"""A file that a snapshot names existed, whole, when the snapshot was published, and stays until the last snapshot, tag,
branch or reader that names it is gone: whoever is stopped, whatever is removed, whatever the clocks say."""

import random
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from bucketline.state.commit.conflict import FILES_GONE, Conflict
from bucketline.state.commit.expire import Retention
from bucketline.state.commit.file_age import CLOCK_SKEW_MS, REMOVABLE_MS
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.determinism import SYSTEM_WORLD
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import EMPTY_ROW
from bucketline.state.format.entries import FileKind, IndexManifestEntry
from bucketline.state.format.json_files.tag_json import Tag
from bucketline.state.store.catalog.branches import Branches
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.tags import Tags
from bucketline.state.store.maintenance.expiry import delete_tag, expire_snapshots
from bucketline.state.store.maintenance.orphans import remove_orphan_files
from tests.support.storage.memory_io import MemoryIO
from tests.support.storage.stopped import HOUR_MS
from tests.support.tables.aged_table import assert_whole, stored_files
from tests.support.tables.commit_table import CommitTable
from tests.support.tables.commits import data_file


@dataclass
class _Writer:
    """Work that was planned and whose files are made, and which is not committed yet."""

    name: str
    message: CommitMessage
    planned_ms: int
    based_on: int


@dataclass
class _World:
    """A table, writers, and a storage whose clock is up to an hour off; nothing happens but by `step`."""

    chance: random.Random
    floor_ms: int = REMOVABLE_MS
    proves: bool = True
    table: CommitTable = field(default_factory=lambda: CommitTable(options={"manifest.merge-min-count": "3"}).create())
    waiting: list[_Writer] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
    gone: int = 0
    removed: int = 0
    numbers: "count[int]" = field(default_factory=count)

    def __post_init__(self) -> None:
        self.skew_ms = self.chance.randint(-CLOCK_SKEW_MS, CLOCK_SKEW_MS)
        self._set_storage_clock()

    @property
    def storage(self) -> MemoryIO:
        assert isinstance(self.table.storage, MemoryIO)
        return self.table.storage

    def step(self) -> None:
        likely = [self._begin] * 4 + [self._commit] * 4 + [self._remove_orphans] * 3 + [self._wait] * 3
        self.chance.choice([*likely, self._die, self._expire, self._tag, self._untag, self._branch])()
        assert_whole(self.table)

    def _set_storage_clock(self) -> None:
        self.storage.now_ms = self.table.pause.clock.now + self.skew_ms

    def _wait(self) -> None:
        self.table.pause.clock.now += self.chance.choice((1_000, 20 * 60_000, 7 * HOUR_MS, 13 * HOUR_MS, 30 * HOUR_MS))
        self._set_storage_clock()

    def _begin(self) -> None:
        name = f"w{next(self.numbers)}"
        newest = self.table.snapshots.latest()
        message = CommitMessage(EMPTY_ROW, 0, 2, new_files=(data_file(f"data-{name}.parquet"),))
        live = [e.file for e in self.table.live()]
        low, top = [f for f in live if f.level == 0], [f for f in live if f.level == 5]
        if self.chance.random() < 0.4 and len(low) > 1:
            merged = data_file(f"data-{name}-c.parquet", level=5)
            message = replace(message, compact_before=(*low, *top), compact_after=(merged,))
        elif self.chance.random() < 0.3 and low and not top:
            message = replace(message, compact_before=(low[0],), compact_after=(low[0].upgraded(5),))
        if self.chance.random() < 0.3:
            message = replace(message, changelog_files=(data_file(f"changelog-{name}.parquet"),))
        if self.chance.random() < 0.2:
            entry = IndexManifestEntry(FileKind.ADD, EMPTY_ROW, 1, "HASH", f"index-{name}", 5, 1)
            message = replace(message, new_index_files=(entry,))
        writer = _Writer(name, message, self.table.pause.clock.now, 0 if newest is None else newest.id)
        self.table.put_files([message])
        self.waiting.append(writer)

    def _commit(self) -> None:
        if not self.waiting:
            return
        writer = self.waiting.pop(self.chance.randrange(len(self.waiting)))
        outcome = self.table.committer().commit(
            [writer.message],
            user=writer.name,
            identifier=1,
            planned_ms=writer.planned_ms if self.proves else None,
        )
        if isinstance(outcome, Committed):
            self.committed.append(writer.name)
        elif isinstance(outcome, Conflict) and outcome.rule == FILES_GONE:
            self.gone += 1
            self._begin()
        else:
            assert isinstance(outcome, Conflict), outcome

    def _die(self) -> None:
        if self.waiting:
            self.waiting.pop()

    def _remove_orphans(self) -> None:
        handle = TableHandle(self.storage, self.table.path, self.table.schema)
        young = self.floor_ms < REMOVABLE_MS
        found = remove_orphan_files(handle, dry_run=False, older_than_ms=self.floor_ms, no_writers=young)
        self.removed += len(found.files)

    def _expire(self) -> None:
        retention = Retention(min_count=1, max_count=self.chance.choice((2, 5)), time_ms=HOUR_MS, limit=50)
        expire_snapshots(self.storage, self.table.path, self.table.schema, self.table.world, retention=retention)

    def _tag(self) -> None:
        ids = self.table.snapshots.ids()
        found = self.table.snapshots.get(self.chance.choice(ids)) if ids else None
        if found is not None:
            Tags(self.storage, self.table.path).create(Tag(f"t{next(self.numbers)}", found))

    def _untag(self) -> None:
        names = Tags(self.storage, self.table.path).names()
        if names:
            delete_tag(self.storage, self.table.path, self.table.schema, self.chance.choice(names), SYSTEM_WORLD)

    def _branch(self) -> None:
        branches = Branches(self.storage, self.table.path)
        tags = Tags(self.storage, self.table.path).list()
        if branches.names() and self.chance.random() < 0.5:
            branches.delete(self.chance.choice(branches.names()))
        elif tags:
            branches.create(f"b{next(self.numbers)}", self.chance.choice(tags))


def _play(seed: int, steps: int = 90, **world: object) -> _World:
    found = _World(random.Random(seed), **world)  # type: ignore[arg-type]
    for _ in range(steps):
        found.step()
    return found


def test_what_a_snapshot_names_exists_when_it_is_published_and_as_long_as_it_is_named() -> None:
    worlds = [_play(seed) for seed in range(8)]
    assert sum(len(w.committed) for w in worlds) > 60
    assert sum(w.gone for w in worlds) > 5 and sum(w.removed for w in worlds) > 40
    for world in worlds:
        # Nobody is about to commit any more, so that all that nothing names goes in the end.
        world.waiting.clear()
        world.storage.now_ms += 2 * REMOVABLE_MS
        world._remove_orphans()
        assert_whole(world.table)
        assert {p for p in stored_files(world.table) if "data-w" in p} == {
            world.table.data_path(name)
            for name in _named_data(world.table)
            if world.storage.exists(world.table.data_path(name))
        }


@pytest.mark.parametrize("rule", [{"floor_ms": 1}, {"proves": False}])
def test_the_play_breaks_a_table_without_either_of_the_rules(rule: dict[str, object]) -> None:
    """Neither is there for nothing: without the limit of a day, or without the proof, snapshots name what is gone."""
    with pytest.raises((AssertionError, CorruptFileError)):
        for seed in range(20):
            _play(seed, **rule)


def _named_data(table: CommitTable) -> set[str]:
    """Data files that some manifest of a kept state adds or deletes."""
    states = [*table.all_snapshots(), *(t.snapshot for t in Tags(table.storage, table.path).list())]
    states += [s for _, s in Branches(table.storage, table.path).states()]
    names: set[str] = set()
    for state in states:
        lists = [state.base_manifest_list, state.delta_manifest_list]
        for name in lists:
            for meta in table.manifests.read_list(name):
                names |= {e.file.file_name for e in table.manifests.read(meta)}
    return names
