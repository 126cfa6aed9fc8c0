"""Holes that were in this library once, put back one by one: simulation has to find each of them.

`python -m tests.simulation.holes [SEEDS] [NAME...]` copies the tree for each, and makes the hole in the copy by
replacing a text that has to be there once. It tries seeds until a world fails: first the seed that has shown the hole
before, then those in which operations meet, or are disturbed where they become visible, that the hole concerns. The
seed has to pass without the hole. Exit code 1 where a hole is not found.
"""

import sys
from collections.abc import Mapping, Sequence

from tests.simulation.edits import ROOT, Edit, edited, run_in

_NOT_FOUND = 3
_PASSES = """
import sys
from tests.simulation.draw import draw_script
from tests.simulation.shorten import failure_of
sys.exit(failure_of(draw_script(sys.argv[1])) is not None)
"""
_FIND = """
import sys
from tests.simulation.draw import draw_script, pair_of
from tests.simulation.shorten import failure_of
known, concerned = [int(n) for n in sys.argv[2].split()], set(sys.argv[3:])
def share(number):
    steps = [s for s in draw_script(str(number)).steps if s.operation in concerned]
    return sum(o in concerned for o in pair_of(str(number))) + sum(any(f.mark for f in s.faults) for s in steps)
def seeds():
    yield from known
    yield from sorted(set(range(int(sys.argv[1]))) - {*known}, key=share, reverse=True)
for number in seeds():
    failure = failure_of(draw_script(str(number)))
    if failure is not None:
        print(number, failure[:300].replace(chr(10), ' '))
        sys.exit(0)
sys.exit(3)
"""


HOLES = (
    Edit(
        "replay of a batch",
        "streaming/batch/recover.py",
        "    if same:\n        return _recognise",
        "    if same and batch.batch_id < 0:\n        return _recognise",
        "a batch was written again after a restart",
    ),
    Edit(
        "files that another compaction took",
        "state/commit/conflict.py",
        "        or check_deletes(live, delta_entries)\n",
        "",
        "two compactions of a bucket left rows twice",
    ),
    Edit(
        "files of tags",
        "state/store/maintenance/expiry.py",
        "steps = self._plan(begin, end, tags, notes.pins.values())",
        "steps = self._plan(begin, end, [], notes.pins.values())",
        "expiry removed files that a tag needs",
    ),
    Edit(
        "pins",
        "state/store/catalog/pins.py",
        "        _wait_for_others(notebook, name, pin, world, heeds_pins=heeds_pins)\n        yield",
        "        notebook.drop(name)\n        yield",
        "issue 28 A 2, 3: a tag or branch named files that expired while it was made",
    ),
    Edit(
        "last look of an orphan removal",
        "state/store/maintenance/orphans.py",
        "return is_temporary(file) or own_name(file) not in used.names",
        "return True",
        "orphan removal took files that snapshots name",
    ),
    Edit(
        "expiry beside a rollback",
        "state/store/maintenance/expiry.py",
        "        return held_end(self._notebook.history, min([end, *self._next_of_consumers()]), notes.pins.values())",
        "        return min([end, *self._next_of_consumers()])",
        "issue 28 A 1: expiry removed the snapshot that a rollback restored",
    ),
    Edit(
        "rescale that was cut short",
        "state/store/write/sealed_runs.py",
        "bucket num is {previous}. {_remedy(plan, previous)}",
        "bucket num is {previous}. Put the option back.",
        "issue 28 A 4: writers were told a wrong way on",
    ),
    Edit(
        "rollback by two",
        "state/store/catalog/rollback.py",
        "        return (now is None or now == self.found[self._next]) and self.snapshots.exists(self.wanted.id)",
        "        return now is None or now is not None",
        "a rollback that was stopped took commits of those who had gone on",
    ),
    Edit(
        "buckets of before",
        "state/store/commit/snapshot_commit.py",
        "        if newest_id <= schema.id or",
        "        if newest_id >= 0 or",
        "an overwrite brought the number of buckets of before a rescale back",
    ),
    Edit(
        "branch that goes",
        "state/store/catalog/branches.py",
        "        return self._history(name) in Notebook(self._io, self._path).deleted()",
        "        return False",
        "a branch that was being deleted looked damaged, and stopped care",
    ),
    Edit(
        "two writers of dynamic buckets",
        "state/store/commit/snapshot_commit.py",
        "            second_writer = self._checks.find_other_writer(author, base.latest, based_on)",
        "            second_writer = None",
        "two writers put a key into two buckets",
    ),
    Edit(
        "island",
        "state/store/commit/publication.py",
        "        if base is not None and base == before:\n            return PublishOutcome.WON",
        "        if base is None or base is not None:\n            return PublishOutcome.WON",
        "a commit on a snapshot that had been taken back or had expired hid those of others",
    ),
    Edit(
        "rows that were deleted meanwhile",
        "state/commit/conflict.py",
        "        if not unchanged:",
        "        if not unchanged and known is not None and known[0] == current[0]:",
        "a compaction brought deleted rows back",
    ),
    Edit(
        "answer that was lost",
        "state/store/commit/publication.py",
        "                else:\n                    self.error = e",
        "                else:\n                    self.refusal = e",
        "a commit was called refused and was in the table, so that its rows were written twice",
    ),
)


_COMPACTIONS = ("compact", "minor compaction", "work on plans")
_WRITES = ("write", "batch")
CONCERNED: Mapping[str, Sequence[str]] = {
    "replay of a batch": ("batch",),
    "files that another compaction took": (*_COMPACTIONS, "sort"),
    "files of tags": ("tag", "tag for a time", "expire"),
    "pins": ("tag", "branch", "roll back", "expire"),
    "last look of an orphan removal": ("remove orphans",),
    "expiry beside a rollback": ("expire", "expire by the options", "roll back", "roll back to a tag"),
    "rescale that was cut short": ("rescale",),
    "rollback by two": ("roll back", "roll back to a tag", *_WRITES),
    "buckets of before": ("rescale", "overwrite"),
    "branch that goes": ("delete a branch", "write to a branch", "expire", "remove orphans"),
    "two writers of dynamic buckets": _WRITES,
    "island": (*_WRITES, "expire", "roll back"),
    "rows that were deleted meanwhile": ("delete", "update", "merge", *_COMPACTIONS),
    "answer that was lost": _WRITES,
}
"""By hole: the operations that it concerns."""
KNOWN_AT: Mapping[str, int] = {
    "replay of a batch": 402,
    "files that another compaction took": 19,
    "files of tags": 13,
    "pins": 159,
    "last look of an orphan removal": 13,
    "expiry beside a rollback": 1939,
    "rescale that was cut short": 724,
    "rollback by two": 125,
    "answer that was lost": 72,
}
"""By hole: a seed that has shown it. It is tried first; if what a seed draws changes, the others are searched."""


def find(hole: Edit, seeds: int) -> str | None:
    """The first seed that fails with the hole, and its failure; None if none of these seeds fails. Raises ValueError if
    the seed fails without the hole too, or no seed could be tried."""
    with edited(hole) as folder:
        known = str(KNOWN_AT.get(hole.name, ""))
        code, told = run_in(folder, [sys.executable, "-c", _FIND, str(seeds), known, *CONCERNED[hole.name]])
    if code == _NOT_FOUND:
        return None
    if code:
        raise ValueError(f"{hole.name}: no seed could be tried: {told.strip()[-300:]}")
    found = told.strip()[-400:]
    seed = found.partition(" ")[0]
    code, told = run_in(ROOT, [sys.executable, "-c", _PASSES, seed])
    if code:
        raise ValueError(f"{hole.name}: seed {seed} fails without the hole too: {told.strip()[-300:]}")
    return found


def main() -> int:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    wanted = sys.argv[2:]
    missed = 0
    for hole in HOLES:
        if wanted and hole.name not in wanted:
            continue
        try:
            found = find(hole, seeds)
        except ValueError as e:
            missed += 1
            print(e, flush=True)
            continue
        missed += found is None
        print(f"{hole.name}: {'not found' if found is None else f'found by seed {found}'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
