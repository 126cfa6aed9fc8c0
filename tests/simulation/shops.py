"""Worlds of jobs of several tables: one topic, a ledger in the checkpoint, and what people do to the tables meanwhile.

A world is drawn from a seed. Its processes die at drawn calls to storage, before, after or in the middle of the call;
the next process writes the batch again. Between batches, and between a death and the next process, tables are rolled
back, dropped and renamed, routes are taken out and put back, the job becomes a job of one table and one of many again,
and records that fit no column park a table, which is unparked later. If a batch stops with an error that names a table
to which such a thing was done, the world asks the job to forget that table, as the error says. After each batch every
table that takes part equals a dictionary, and holds each batch once.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bucketline.state.errors import TableNotFoundError
from bucketline.state.store.table.maintenance import roll_back_table
from bucketline.state.store.table.table import handle_of, open_table
from bucketline.streaming.batch.recover import CheckpointMismatchError
from bucketline.streaming.many.ledger import Entry
from bucketline.streaming.many.ledger_files import TableRequest, Wish
from tests.simulation.judge import Judgement
from tests.support.spark.many_shop import Shop
from tests.support.spark.tasks import killed_at

TABLES = ("a", "b", "c")
_COLUMNS = "id BIGINT NOT NULL, v STRING, n BIGINT"
_STOPPED = (CheckpointMismatchError, TableNotFoundError)
_MOST_ATTEMPTS = 12
_LAST_BATCHES = 8

Row = dict[str, Any]
Rows = dict[int, Row]
Change = tuple[str, Row]
"""The kind of a change, as Debezium names it, and the row."""


@dataclass
class ShopHistory:
    """What happened in a world: how often each thing was done, and what went wrong."""

    operations: Counter[str] = field(default_factory=Counter)
    log: list[str] = field(default_factory=list)
    failure: str | None = None
    error: BaseException | None = None


@dataclass
class Shelf:
    """A table of a world and what is known of it. `rows` are the rows that it must hold."""

    name: str
    folder: str
    is_routed: bool = True
    rows: Rows = field(default_factory=dict)
    versions: list[Rows] = field(default_factory=lambda: [{}])
    """The rows after each batch."""
    pending: list[Change] = field(default_factory=list)
    """The changes of the batch that is being written, if the table had a route when they were made."""
    planned: list[Change] = field(default_factory=list)
    """The same changes, with or without a route."""
    since: list[Change] = field(default_factory=list)
    """All changes since it last took part in a batch, also those of a time without its route: if it is parked and
    unparked, it catches up with them."""
    otherwise: Rows | None = None
    """Other rows that it may hold after the batch: its route changed after a process had begun the batch."""
    is_excused: bool = False
    """Whether something was done to it after which a job may stop."""
    must_stop: bool = False
    """Whether it has lost a batch that the ledger names, so that the job may not go on with it."""
    was_parked: bool = False
    is_forgotten: bool = False
    """Whether the job was asked to forget it, and has not written a batch since."""


def changed(rows: Rows, changes: list[Change]) -> Rows:
    """The rows after some changes."""
    found = dict(rows)
    for kind, row in changes:
        if kind == "d":
            found.pop(row["id"], None)
        else:
            found[row["id"]] = row
    return found


class ShopWorld:
    """One run of the world of a seed, in a folder of its own."""

    def __init__(self, seed: str, root: Path) -> None:
        self.draw = random.Random(f"shop {seed}")
        self.root, self.history = root, ShopHistory()
        self.parks, self.is_strict = self.draw.random() < 0.5, True
        self.bucket = self.draw.choice(("1", "2", "-1"))
        self.shelves = {name: Shelf(name, name) for name in TABLES}
        self.is_alone, self.is_ending = False, False
        self.poisoned = -1
        """The batch in which the newest record came that fits no column."""
        self.count = 0
        self.job = Shop(root, "")
        self._rewrite()

    # -- the job file

    def _rewrite(self) -> None:
        """Writes the job file anew; the job reads it when it starts again."""
        lines = [f'create: {{schema: "{_COLUMNS}", primary-key: [id], options: {{bucket: "{self.bucket}"}}}}']
        if not self.is_strict:
            lines.append("bad-records: {path: ROOT/bad, max: 100}")
        if self.is_alone:
            lines += ["source-table: shop.a", f"table: ROOT/w/{self.shelves['a'].folder}"]
        else:
            routed = [s for s in self.shelves.values() if s.is_routed]
            routes = ", ".join(f"{{source-table: shop.{s.name}, table: ROOT/w/{s.folder}}}" for s in routed)
            lines += ["unmatched: skip", "commit-parallelism: 1", f"tables: [{routes}]"]
            lines += ["on-table-failure: park"] if self.parks else []
        self.job.text = "\n".join(lines) + "\n"
        self.job.crash()

    def _takes_rows(self, shelf: Shelf) -> bool:
        return shelf.name == "a" if self.is_alone else shelf.is_routed

    # -- what happens

    def live(self, steps: int) -> ShopHistory:
        """Lives through some batches, and what is done between them."""
        try:
            for _ in range(steps):
                if self.job.done and self.draw.random() < 0.6:
                    self._meddle()
                self._plan()
                self._write()
            self._end()
        except Exception as e:  # noqa: BLE001 (each failure is told with its seed)
            self.history.failure, self.history.error = f"{type(e).__name__}: {e}", e
        return self.history

    def _tell(self, what: str) -> None:
        self.history.operations[what.partition(":")[0]] += 1
        self.history.log.append(f"batch {self.job.done}: {what}")

    def _plan(self) -> None:
        """Puts the changes of the next batch into the topic."""
        for _ in range(self.draw.choice((1, 3, 8))):
            shelf = self.shelves[self.draw.choice(TABLES)]
            self.count += 1
            row = {"id": self.draw.randrange(6), "v": f"{shelf.name}-{self.count}", "n": self.count}
            kind = "d" if self.draw.random() < 0.2 else "c"
            self.job.topic.change(shelf.name, row, kind)
            shelf.pending.append((kind, row))
        for shelf in self.shelves.values():
            shelf.since += shelf.pending
            shelf.planned = [*shelf.pending]
            if not self._takes_rows(shelf):
                shelf.is_excused = shelf.is_excused or bool(shelf.pending)
                shelf.pending = []
            shelf.rows = changed(shelf.rows, shelf.pending)

    def _write(self) -> None:
        """Writes a batch until a process comes to its end."""
        self._tell("batch")
        for attempt in range(_MOST_ATTEMPTS):
            dies = attempt < 3 and self.draw.random() < 0.5
            at = self.draw.randrange(1, self.draw.choice((40, 150))) if dies else None
            way = self.draw.choice(("before", "after", "torn"))
            try:
                with killed_at(at, way) as death:
                    self.job.batch()
            except _STOPPED as e:
                self._forget(e)
                continue
            if not death.is_dead:
                self._check()
                for shelf in self.shelves.values():
                    shelf.pending, shelf.otherwise, shelf.is_forgotten = [], None, False
                return
            self._tell(f"death: at call {at}, {way}")
            self.job.crash()
            if self.draw.random() < 0.2 and not self.is_ending:
                self._meddle(is_begun=True)
        raise Judgement(f"batch {self.job.done} does not come to its end")

    def _forget(self, error: Exception) -> None:
        """Asks the job to forget the table that an error names."""
        told = str(error)
        named = [s for s in self.shelves.values() if f"{self._path(s)}" in told and s.is_excused]
        if not named:
            raise Judgement(f"nothing was done to the table of the error {type(error).__name__}: {told}") from error
        shelf = max(named, key=lambda s: len(s.folder))
        self._tell(f"forget: {shelf.name}, {told[:90]}")
        self.job.crash()
        self._ask(Wish.FORGET, shelf)
        shelf.must_stop, shelf.is_forgotten = False, True

    def _ask(self, wish: Wish, shelf: Shelf) -> None:
        self.job.state().files.ask(TableRequest(wish, self._path(shelf)))

    def _path(self, shelf: Shelf) -> str:
        return f"{self.root}/w/{shelf.folder}"

    def _exists(self, shelf: Shelf) -> bool:
        return Path(self._path(shelf), "schema").exists()

    # -- what people do

    def _meddle(self, *, is_begun: bool = False) -> None:
        """Does something to a table or to the job. `is_begun` says that a process has begun a batch and died."""
        shelf = self.shelves[self.draw.choice(TABLES)]
        acts: Mapping[str, Callable[[Shelf], None]] = {
            "roll back": self._roll_back,
            "drop": self._drop,
            "change a route": self._reroute,
            "one table or many": self._alone_or_many,
        }
        if not is_begun:
            acts = {**acts, "rename": self._rename, "poison": self._poison, "unpark": self._unpark}
        name = self.draw.choice(sorted(acts))
        before = {s.name: changed(s.versions[-1], []) for s in self.shelves.values()}
        was_routed = {s.name: self._takes_rows(s) for s in self.shelves.values()}
        acts[name](shelf)
        self._tell(f"{name}: {shelf.name}{' during a batch' if is_begun else ''}")
        for each in self.shelves.values():
            if was_routed[each.name] != self._takes_rows(each):
                each.is_excused = True
                if is_begun:
                    each.rows, each.otherwise = changed(before[each.name], each.planned), before[each.name]

    def _roll_back(self, shelf: Shelf) -> None:
        if not self._exists(shelf):
            return
        table = open_table(self._path(shelf))
        ids = table.snapshots()["snapshot_id"].to_pylist()
        if not ids:
            return
        target = self.draw.choice(ids)
        roll_back_table(handle_of(table), target)
        left = self._held(shelf)
        if left not in [*shelf.versions, shelf.rows] and not self._is_parked(shelf):
            raise Judgement(f"after a rollback {shelf.name} holds {left}, which it never held: {shelf.versions}")
        if target == max(ids):
            return  # nothing is taken back, so it still catches up from where it was
        self._begins_with(shelf, left)
        entry = self._entry(shelf)
        batches = self._batches(shelf)
        is_behind = entry is not None and max(batches, default=-1) < entry.last_batch
        shelf.must_stop = is_behind and not shelf.is_forgotten

    def _begins_with(self, shelf: Shelf, rows: Rows) -> None:
        """The table holds other rows than before, and gets the batch that is being written, if there is one."""
        is_open = shelf.otherwise is not None  # a route that changed during the batch: it may get the batch or not
        shelf.versions.append(rows)
        shelf.rows, shelf.is_excused = changed(rows, shelf.planned if is_open else shelf.pending), True
        shelf.otherwise = rows if is_open else None
        shelf.since = [*shelf.pending]

    def _drop(self, shelf: Shelf) -> None:
        if self._exists(shelf):
            catches_up = shelf.since if self._is_parked(shelf) and not self._batches(shelf) else None
            shutil.rmtree(self._path(shelf))
            self._begins_with(shelf, {})
            if catches_up is not None:
                shelf.since = catches_up  # it has no batch that could be lost, so it still gets all records
            shelf.must_stop = self._entry(shelf) is not None and not shelf.is_forgotten

    def _rename(self, shelf: Shelf) -> None:
        if self._exists(shelf) and not self._is_parked(shelf):
            old = self._path(shelf)
            shelf.folder = f"{shelf.name}-{self.job.done}"
            Path(old).rename(self._path(shelf))
            shelf.is_excused = True
            shelf.must_stop = False  # the ledger knows tables by their paths, so it names no batch of this one
            self._rewrite()

    def _reroute(self, shelf: Shelf) -> None:
        if shelf.name != "a":
            shelf.is_routed = not shelf.is_routed
            self._rewrite()

    def _alone_or_many(self, _: Shelf) -> None:
        if self.poisoned == self.job.done:
            return  # a job of one table stops at the record; only a job of many tables parks a table
        self.is_alone = not self.is_alone
        self._rewrite()

    def _poison(self, shelf: Shelf) -> None:
        """A record that fits no column comes, and parks the table."""
        if self.parks and self.is_strict and not self.is_alone and shelf.is_routed:
            self.job.topic.change(shelf.name, {"id": 1, "v": "x", "n": "no number"})
            self.poisoned = self.job.done
            shelf.is_excused = True

    def _unpark(self, _: Shelf) -> None:
        """From now on records that fit no column are bad records; what is parked catches up."""
        if self.parks and self.job.done:
            self.is_strict = False
            self._rewrite()
            for shelf in self.shelves.values():
                if self._is_parked(shelf) and self._takes_rows(shelf):
                    self._ask(Wish.UNPARK, shelf)

    # -- the judge

    def _entry(self, shelf: Shelf) -> Entry | None:
        """What the newest ledger says of a table."""
        files = self.job.state().files
        numbers = files.numbers()
        ledger = files.read(numbers[-1]) if numbers else None
        return None if ledger is None else ledger.tables.get(self._path(shelf))

    def _is_parked(self, shelf: Shelf) -> bool:
        entry = self._entry(shelf)
        return entry is not None and not entry.takes_part

    def _held(self, shelf: Shelf) -> Rows:
        if not self._exists(shelf):
            return {}
        return {row["id"]: row for row in open_table(self._path(shelf)).to_arrow().to_pylist()}

    def _batches(self, shelf: Shelf) -> list[int]:
        """The batches that the table's snapshots name, in their order."""
        if not self._exists(shelf):
            return []
        snapshots = open_table(self._path(shelf)).snapshots().to_pylist()
        return [s["commit_identifier"] for s in snapshots if s["commit_kind"] == "APPEND"]

    def _check(self) -> None:
        """Raises Judgement unless each table that takes part holds the rows that it must hold, and each batch once."""
        for shelf in self.shelves.values():
            held, batches = self._held(shelf), self._batches(shelf)
            if batches != sorted(set(batches)):
                raise Judgement(f"{shelf.name} has the batches {batches}")
            if self._is_parked(shelf):
                if not shelf.is_excused:
                    raise Judgement(f"{shelf.name} is parked, and nothing was done to it: {self._entry(shelf)}")
                shelf.must_stop, shelf.was_parked = False, True
                continue
            if shelf.must_stop and shelf.pending and self._takes_rows(shelf):
                raise Judgement(f"{shelf.name} has lost a batch that the ledger names, and the job went on")
            if shelf.otherwise is not None and held == shelf.otherwise:
                shelf.rows = held
            if shelf.was_parked:
                shelf.rows, shelf.was_parked = changed(shelf.versions[-1], shelf.since), False
            if held != shelf.rows:
                raise Judgement(f"{shelf.name} holds {held}, expected {shelf.rows}")
            shelf.versions.append(deepcopy(held))
            entry = self._entry(shelf)
            if self._takes_rows(shelf) and (shelf.pending or entry is None or entry.cutoff is None):
                shelf.since = []

    def _end(self) -> None:
        """All routes are there again, and each table that is parked catches up, or is forgotten if it cannot."""
        self.is_alone, self.is_ending = False, True
        for shelf in self.shelves.values():
            shelf.is_excused = shelf.is_excused or not shelf.is_routed
            shelf.is_routed = True
        self._rewrite()
        for n in range(_LAST_BATCHES):
            self._unpark(self.shelves["a"])
            for shelf in self.shelves.values():
                if n >= _LAST_BATCHES // 2 and self._is_parked(shelf):
                    # What it has lost cannot be caught up with. Some tables are parked only after others are forgotten.
                    self._ask(Wish.FORGET, shelf)
                    self._begins_with(shelf, self._held(shelf))
                    shelf.was_parked = False
                    self._tell(f"forget: {shelf.name} at the end")
            self._plan()
            self._write()
            if not any(map(self._is_parked, self.shelves.values())):
                break
        parked = [s.name for s in self.shelves.values() if self._is_parked(s)]
        if parked:
            raise Judgement(f"{parked} stay parked: {[self._entry(self.shelves[n]) for n in parked]}")


def shop_world(seed: str, steps: int = 8) -> ShopHistory:
    """Lives through the world of a seed."""
    with TemporaryDirectory(prefix="shop-") as folder:
        return ShopWorld(seed, Path(folder)).live(steps)
