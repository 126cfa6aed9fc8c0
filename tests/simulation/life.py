"""One run of a world: tables are made, actors do their steps with faults, streams finish, and the judge checks the
end."""

import hashlib
import logging
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar
from unittest.mock import patch

from bucketline.conf.errors import BucketlineError
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import (
    CommitOutcomeUnknownError,
    CommittedNotVisibleError,
    CorruptFileError,
    MissingSnapshotError,
    StorageError,
)
from bucketline.state.store.catalog.table_handle import TableHandle
from bucketline.state.store.catalog.tell_once import tell_once
from bucketline.state.store.engine import local_engine
from bucketline.state.store.index.hash_index_store import shared_hash_cache
from bucketline.state.store.key_index import ready
from bucketline.state.store.storage import file_io
from bucketline.state.store.storage import plain_io as plain_io_module
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.storage.wrapped_io import Inner
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.streaming.batch.recover import CheckpointMismatchError
from tests.simulation.catalog import Catalog
from tests.simulation.decoded import decoded_once
from tests.simulation.disk import Change, Disk
from tests.simulation.faults import Fault, FaultKind, Store, Trouble
from tests.simulation.jobs import JOB, Doings, JobRun, jobs_of_processes, some_tables
from tests.simulation.judge import UNDOING, Doing, Judge, Judgement, Published
from tests.simulation.operations import OPERATIONS, Act, draw_rows
from tests.simulation.rows import COLUMNS, KINDS, Effect, State, state_of, table_of
from tests.simulation.scheduler import KilledError, Process, Scheduler, current
from tests.simulation.script import Script, Step, TablePlan, Track
from tests.simulation.sources import in_this_process, machine_of, own_disks
from tests.simulation.storages import SimIO, storage_of
from tests.simulation.streams import Stream, cluster_of, tasks_of_processes

T = TypeVar("T")

ROOT = "/simulated/shop.db"
_BATCHES = ("batch", JOB)
_PLANNED_AGAIN = (*_BATCHES, "write", "overwrite", "delete", "update", "merge", "compact", "sort", "rescale")
_ATTEMPTS = 6
_RESTART_MS = 3000
_DAYS_MS = 2 * 86_400_000


@dataclass
class History:
    """What happened in a world. `digest` tells two histories apart; `log` has a line for each operation's begin and
    end; `met` are the pairs of operations that ran on one table at the same time."""

    digest: str = ""
    log: list[str] = field(default_factory=list)
    operations: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    met: set[frozenset[str]] = field(default_factory=set)
    ends: dict[str, State] = field(default_factory=dict)
    """The rows of each table at the end, as readers of this library see them."""
    failure: str | None = None
    error: BaseException | None = None
    """What was raised where it failed, for whoever looks into it."""
    turns: int = 0


class Life:
    """One run of a script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.scheduler = Scheduler(script.seed)
        self.disk = Disk(self.scheduler)
        self.kinds = {t.name: KINDS[t.kind] for t in script.tables}
        self.judges = {t.name: Judge(self.disk, f"{ROOT}/{t.name}", KINDS[t.kind]) for t in script.tables}
        self.disk.watchers += [self._note, *(j.watch for j in self.judges.values())]
        self.history = History()
        self._hash = hashlib.sha256()
        self._ios: dict[Process, SimIO] = {}
        self.catalog = Catalog(self.disk, self.scheduler) if script.store is Store.REST else None
        self.jobs = {
            t.name: JobRun.of(ROOT, t.name, [p.name for p in script.tables])
            for t in script.tracks
            if any(s.operation == JOB for s in t.steps)
        }

    def io(self, process: Process) -> SimIO:
        """The storage as a process reaches it."""
        found = self._ios.get(process)
        if found is None:
            found = self._ios[process] = storage_of(self.disk, process, self.script.store, Trouble())
        return found

    def live(self) -> History:
        """Runs the script. `failure` of the history says what went wrong."""
        with _connected(self), in_this_process(), tasks_of_processes(), jobs_of_processes(), decoded_once():
            try:
                self._phase("beginning", self._begin)
                self.disk.world.now_ms += _DAYS_MS  # what is there is old
                for track in self.script.tracks:
                    self._start(track, 0, 1, 0)
                self.scheduler.run()
                self.disk.full_until_ms = -1
                self._phase("settling", self._settle)
            except (Judgement, BucketlineError, Exception) as e:  # noqa: BLE001 (each failure is told with its seed)
                self.history.failure = f"{type(e).__name__}: {e}"
                self.history.error = e
                self.scheduler.end()
        self.history.digest = self._hash.hexdigest()
        self.history.turns = self.scheduler.turns
        self._count_meetings()
        return self.history

    def _phase(self, name: str, work: object) -> None:
        assert callable(work)
        self.scheduler.start(name, lambda process: work(process))
        self.scheduler.run()

    # -- beginning

    def _begin(self, process: Process) -> None:
        draw = process.chance
        for plan in self.script.tables:
            self._make(process, plan, draw)

    def _make(self, process: Process, plan: TablePlan, draw: random.Random) -> None:
        kind, judge = self.kinds[plan.name], self.judges[plan.name]
        options = {**kind.options, **dict(plan.options)}
        path = f"{ROOT}/{plan.name}"
        table = create_table(path, COLUMNS, kind.key, kind.days, options)
        if self.catalog is not None:
            self.catalog.adopt(plan.name, path)
            table = open_table(path)
        for n in range(plan.history):
            doing = self._doing(Step(-1, plan.name, "write", n), "beginning", process, judge)
            effect = doing.effect = Effect(draw_rows(draw, kind, has_more=False))
            table.write(table_of(effect.rows, has_more=False))
            judge.end(doing, "done")
            doing = self._doing(Step(-1, plan.name, "tag", n), "beginning", process, judge)
            if n == 1:
                table.create_tag("old", snapshot=max(table.snapshots()["snapshot_id"].to_pylist()))
                table.create_branch("side", "old")
            judge.end(doing, "done")

    # -- what actors do

    def _start(self, track: Track, at: int, attempt: int, after_ms: int, batch: int = 0) -> None:
        name = f"{track.name}.{at}.{attempt}"

        def main(process: Process) -> None:
            process.slowness = track.slowness
            clock = machine_of(process).clock
            clock.offset_ms, clock.drift = track.offset_ms, track.drift
            self._follow(process, track, at, attempt)

        self.scheduler.start(name, main, after_ms=after_ms)

    def _follow(self, process: Process, track: Track, at: int, attempt: int) -> None:
        stream: Stream | None = None
        trouble = self.io(process).trouble
        while at < len(track.steps):
            step = track.steps[at]
            judge = self.judges[step.table]
            if attempt == 1 and step.gap_ms:
                process.sleep(step.gap_ms)
            doing = self._doing(step, track.name, process, judge)
            trouble.begin(doing, self._faults_of(step, attempt))
            try:
                if step.operation == "batch":
                    stream = self._batch(process, step, doing, stream, track, attempt)
                elif step.operation == JOB:
                    self._job(process, step, doing, track)
                else:
                    table = Table(replace(_handle(step.table), world=machine_of(process).world))
                    draw = random.Random(f"{self.script.seed} {step.number} {step.details}")
                    first_id = self.script.first_id(track.name)
                    OPERATIONS[step.operation](Act(table, self.kinds[step.table], judge, doing, draw, first_id))
                judge.end(doing, "done")
            except KilledError:
                if not doing.result:
                    judge.end(doing, "killed")
                self.history.faults.update(k.name for k in trouble.struck)
                trouble.struck.clear()
                if process.is_dead and not self.scheduler.errors:
                    again = step.operation in _BATCHES and attempt < _ATTEMPTS
                    self._start(track, at if again else at + 1, attempt + 1 if again else 1, _RESTART_MS)
                raise
            except BucketlineError as e:
                judge.end(doing, self._result_of(e), e.code)
                self._check_error(doing, e, trouble)
                stream = None
            self._ended(doing, trouble)
            if step.operation in _BATCHES and doing.result != "done" and doing.code != "CHECKPOINT_MISMATCH":
                if attempt < _ATTEMPTS:
                    attempt += 1
                    process.sleep(_RESTART_MS)
                    continue
                return
            if doing.code == "CHECKPOINT_MISMATCH":
                return
            at, attempt = at + 1, 1

    def _batch(
        self, process: Process, step: Step, doing: Doing, stream: Stream | None, track: Track, attempt: int
    ) -> Stream:
        kind, user = self.kinds[step.table], f"query-{track.name}-{step.table}"
        number = [s.number for s in track.steps if s.operation == "batch" and s.table == step.table].index(step.number)
        draw = random.Random(f"{self.script.seed} {step.number} {step.details}")
        rows = draw_rows(draw, kind, has_more=False, first_id=self.script.first_id(track.name))
        doing.batch, doing.effect = (user, number), Effect(rows)
        if stream is None or not stream.path.endswith(f"/{step.table}"):
            stream = Stream(f"{ROOT}/{step.table}", user, process.name, {})
        twice = attempt == 1 and any(f.kind is FaultKind.SPECULATE for f in step.faults)
        cluster = cluster_of(random.Random(f"{step.details} {attempt}"), twice=twice)
        has_more = "more" in open_table(stream.path).schema.names
        stream.write(table_of(rows, has_more=has_more), number, cluster)
        return stream

    def _job(self, process: Process, step: Step, doing: Doing, track: Track) -> None:
        """A batch of a job of all tables. `doing` is what it does to the table that its step names."""
        run = self.jobs[track.name]
        number = [s.number for s in track.steps if s.operation == JOB].index(step.number)
        draw = random.Random(f"{self.script.seed} {step.number} {step.details}")
        first_id = self.script.first_id(track.name)
        drawn = {
            name: Effect(draw_rows(draw, self.kinds[name], has_more=False, first_id=first_id))
            for name in some_tables(draw, list(self.kinds))
        }
        effects = run.plan(number, drawn)
        trouble = self.io(process).trouble
        doings = {step.table: doing}
        for name, judge in self.judges.items():
            if name != step.table:
                doings[name] = Doing(step.number, track.name, JOB, name, 0)
                judge.begin(doings[name])
        for name, each in doings.items():
            each.batch, each.effect = (f"{JOB} {track.name}", number), effects.get(name, Effect())
        trouble.owner = Doings(doings)
        try:
            run.write(process, number)
        except BaseException as e:
            killed = isinstance(e, KilledError)
            for name, each in doings.items():
                if each is not doing:
                    code = e.code if isinstance(e, BucketlineError) else ""
                    self.judges[name].end(each, "killed" if killed else "unknown", code)
            raise
        for name, each in doings.items():
            if each is not doing:
                self.judges[name].end(each, "done")

    def _faults_of(self, step: Step, attempt: int) -> tuple[Fault, ...]:
        return step.faults if attempt == 1 else ()

    def _doing(self, step: Step, actor: str, process: Process, judge: Judge) -> Doing:
        doing = Doing(step.number, actor, step.operation, step.table, 0)
        judge.begin(doing)
        self.io(process).trouble.begin(doing, ())
        self._tell(f"{actor} begins {step.number} {step.operation}")
        return doing

    def _ended(self, doing: Doing, trouble: Trouble) -> None:
        self.history.faults.update(k.name for k in trouble.struck)
        trouble.struck.clear()
        self._tell(str(doing))

    @staticmethod
    def _result_of(error: BucketlineError) -> str:
        # A commit on a snapshot that was taken back says CORRUPT_FILE if another commit builds on it already.
        unclear = (CommitOutcomeUnknownError, CommittedNotVisibleError, CorruptFileError)
        return "unknown" if isinstance(error, unclear) else "refused"

    def _check_error(self, doing: Doing, error: BucketlineError, trouble: Trouble) -> None:
        """Raises Judgement for an error that nothing in the world explains."""
        judges = [*self.judges.values()] if doing.operation == JOB else [self.judges[doing.table]]
        if isinstance(error, CheckpointMismatchError):
            # Where its newest snapshot expires before a slow stream has marked it, the stream says so and stops.
            has_rolled = any(d.operation in UNDOING for j in judges for d in j.doings)
            if error.history_complete and not has_rolled:
                raise Judgement(f"{doing}: {error}") from error
        elif isinstance(error, CorruptFileError):
            excusing = [j for j in judges if j.is_excused(doing)]
            if "was interrupted while a writer committed" in str(error):
                excusing += [j for j in judges if j.has_interrupted_rollback()]
            if "roll the table back to snapshot" in str(error).lower():
                for judge in excusing:
                    judge.is_given_up = True
            if "branch" in doing.operation or excusing or self._has_slept():
                return  # the branch was deleted meanwhile; or snapshots are being removed
            raise Judgement(f"{doing}: {error}") from error
        elif isinstance(error, StorageError) and error.missing and doing.operation in _PLANNED_AGAIN:
            unexcused = [judge for judge in judges if not judge.is_excused(doing)]
            if len(unexcused) == len(judges):
                raise Judgement(f"{doing}: {error}") from error

    def _has_slept(self) -> bool:
        """Whether a process was stopped for so long that docs/ announces some errors."""
        long = (FaultKind.STOP, FaultKind.STOP_AFTER)
        return any(f.kind in long and f.ms >= 3_600_000 for s in self.script.steps for f in s.faults)

    # -- the end

    def _settle(self, process: Process) -> None:
        self.scheduler.now_ms += _DAYS_MS
        if not any(judge.is_given_up for judge in self.judges.values()):
            self._finish_jobs(process)
        for name, judge in self.judges.items():
            if judge.is_given_up:
                continue
            try:
                self._settle_table(process, name, judge)
            except MissingSnapshotError as e:
                # A stream has marked its snapshot while a rollback removed it, and the error says how to go on; or a
                # writer was stopped for hours after it had published, and wrote the hint LATEST after a rollback.
                is_late = "tag bucketline-writer-" in str(e) or ("hint LATEST" in str(e) and self._has_slept())
                if not is_late or not any(d.operation in UNDOING for d in judge.doings):
                    raise

    def _settle_table(self, process: Process, name: str, judge: Judge) -> None:
        path = f"{ROOT}/{name}"
        self._doing(Step(-2, name, "settle", 0), "settling", process, judge)
        self._finish_streams(process, name, judge)
        if not self.kinds[name].readers_wait:
            self._check(f"{name} before care", judge, judge.shown(), open_table(path))
        self._care(process, name, judge)
        self._check(f"{name} after care", judge, [judge.newest()], open_table(path))
        self.history.ends[name] = state_of(open_table(path).to_arrow())
        judge.check_files()
        judge.check_answers()
        self._references(name)
        if self.script.judged_by_doctor:
            found = [f for f in open_table(path).doctor(rows=True) if not judge.expects(f)]
            if found:
                raise Judgement(f"{name}: doctor finds {found[:3]}")

    def _finish_streams(self, process: Process, name: str, judge: Judge) -> None:
        """Writes the batches that a stream has not been able to write until now."""
        for track in self.script.tracks:
            stream: Stream | None = None
            for step in track.steps:
                if step.operation != "batch" or step.table != name:
                    continue
                doings = [d for d in judge.doings if d.number == step.number]
                if any(d.result == "done" for d in doings):
                    continue
                doing = self._doing(step, "settling", process, judge)
                try:
                    write = partial(self._batch, process, step, doing, stream, track, 2)
                    stream = self._helped(process, [name], write)
                    judge.end(doing, "done")
                except CheckpointMismatchError as e:
                    judge.end(doing, "refused", e.code)
                    self._check_error(doing, e, self.io(process).trouble)
                    break

    def _finish_jobs(self, process: Process) -> None:
        """As `_finish_streams`, for jobs of all tables."""
        for track in self.script.tracks:
            for step in (s for s in track.steps if s.operation == JOB):
                judge = self.judges[step.table]
                if any(d.number == step.number and d.result == "done" for d in judge.doings):
                    continue
                doing = self._doing(step, "settling", process, judge)
                try:
                    self._helped(process, self.judges, partial(self._job, process, step, doing, track))
                    judge.end(doing, "done")
                except CheckpointMismatchError as e:
                    judge.end(doing, "refused", e.code)
                    self._check_error(doing, e, self.io(process).trouble)
                    break

    def _care(self, process: Process, name: str, judge: Judge) -> None:
        """Checks that doctor and later maintenance find nothing wrong. A rescale that was cut short is finished
        first."""
        path = f"{ROOT}/{name}"
        for operation, work in (
            ("compact", lambda: open_table(path).compact()),
            ("expire", lambda: open_table(path).expire_snapshots(retain_min=1, retain_max=1)),
            ("remove orphans", lambda: open_table(path).remove_orphan_files(dry_run=False)),
        ):
            doing = self._doing(Step(-3, name, operation, 0), "settling", process, judge)
            self._helped(process, [name], work)
            judge.end(doing, "done")

    def _helped(self, process: Process, names: Iterable[str], work: Callable[[], T]) -> T:
        """Does the work; where an error says that tables are to be rescaled, does that first. It may say so where a
        rescale was cut short, or where history before it was taken back."""
        try:
            return work()
        except BucketlineError as e:
            wanted = re.findall(r"`rescale\((\d+)\)`", str(e))
            cut = [n for n in names if any(_may_need_rescale(d) for d in self.judges[n].doings)]
            if not wanted or not cut:
                raise
            owner = self.io(process).trouble.owner
            for name in cut:
                doing = self._doing(Step(-3, name, "rescale", 0), "settling", process, self.judges[name])
                open_table(f"{ROOT}/{name}").rescale(int(wanted[-1]))
                self.judges[name].end(doing, "done")
            self.io(process).trouble.begin(owner, ())
            return work()

    def _references(self, name: str) -> None:
        """Checks that tags and branches are readable, and hold the same rows as before."""
        judge, path = self.judges[name], f"{ROOT}/{name}"
        for tag in open_table(path).tags()["tag_name"].to_pylist():
            if tag.startswith("bucketline-"):
                continue
            tagged = open_table(path, options={"scan.tag-name": tag})
            if self.kinds[name].readers_wait:
                tagged.to_arrow()
            else:
                self._check(f"tag {tag} of {name}", judge, [judge.tags[f"{path}/tag/tag-{tag}"]], tagged)
        for branch in open_table(path).branches():
            side, root = open_table(path, options={"branch": branch}), f"{path}/branch/branch-{branch}"
            if self.kinds[name].readers_wait or root not in judge.lines:
                side.to_arrow()
            else:
                self._check(f"branch {branch} of {name}", judge, [judge.newest(root)], side)

    @staticmethod
    def _check(what: str, judge: Judge, known: Sequence[Published | None], table: Table) -> None:
        """Checks that readers see the rows of one of the snapshots, as the judge expects."""
        held = state_of(table.to_arrow())
        expected = [({}, frozenset[object]()) if p is None else (p.state, p.ties) for p in known]
        if not any(state is None or judge.is_same(held, state, ties) for state, ties in expected):
            raise Judgement(f"{what}: readers see {sorted(held.items())}, expected one of {[s for s, _ in expected]}")

    # -- what is told

    def _tell(self, line: str) -> None:
        told = f"{self.scheduler.now_ms} {line}"
        self.history.log.append(told)
        self._hash.update(told.encode())

    def _note(self, change: Change) -> None:
        size = -1 if change.after is None else len(change.after.data)
        if "/key-index/" in change.path:
            size = min(size, 0)  # RocksDB's files hold times and names of its own
        self._hash.update(f"{self.scheduler.now_ms} {change.path} {size}".encode())

    def _count_meetings(self) -> None:
        for judge in self.judges.values():
            doings = [d for d in judge.doings if d.number >= 0]
            self.history.operations.update(d.operation for d in doings)
            self.history.outcomes.update((d.operation, d.code or d.result or "") for d in doings)
            for n, one in enumerate(doings):
                for other in doings[n + 1 :]:
                    if other.actor != one.actor and (one.ended is None or other.began < one.ended):
                        self.history.met.add(frozenset((one.operation, other.operation)))


def _may_need_rescale(doing: Doing) -> bool:
    return doing.operation in UNDOING or (doing.operation == "rescale" and doing.result != "done")


def _handle(name: str) -> TableHandle:
    return handle_of(open_table(f"{ROOT}/{name}"))


@contextmanager
def _connected(life: Life) -> Iterator[None]:
    """While the block runs, paths below `ROOT` lead to the disk of the world, through the storage of the process that
    asks."""
    real = plain_io_module.plain_io

    def plain_io(uri: str, options: Mapping[str, str], world: World = SYSTEM_WORLD) -> tuple[Inner, str]:
        process = current()
        if process is None or not uri.startswith(ROOT):
            return real(uri, options, world)
        path, io = LocalIO.absolute(uri), life.io(process)
        return (io if life.catalog is None else life.catalog.storage(io, path)), path

    logging.disable(logging.CRITICAL)
    shared_hash_cache.cache_clear()
    tell_once.cache_clear()
    with (
        own_disks(),
        patch.object(file_io, "plain_io", plain_io),
        patch.object(local_engine, "core_count", lambda: 1),
        patch.object(ready, "core_count", lambda: 1),
    ):
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)
