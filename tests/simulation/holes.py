"""Holes that were in this library once, put back one by one: simulation has to find each of them.

`python -m tests.simulation.holes [SEEDS] [NAME...]` copies the tree for each, makes the hole in the copy by replacing a
text that has to be there once, and tries seeds until a world fails. Exit code 1 where a hole is not found.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_COPIED = ("conf", "state", "streaming", "src", "tests")
_FIND = """
import sys
from tests.simulation.draw import draw_script
from tests.simulation.shorten import failure_of
for number in range(int(sys.argv[1])):
    failure = failure_of(draw_script(str(number)))
    if failure is not None:
        print(number, failure[:300].replace(chr(10), ' '))
        sys.exit(0)
sys.exit(3)
"""


@dataclass(frozen=True)
class Hole:
    """A text of a module, and what stands in its place where the hole is. `was` says what could happen."""

    name: str
    module: str
    text: str
    instead: str
    was: str


HOLES = (
    Hole(
        "replay of a batch",
        "streaming/batch/recover.py",
        "    if same:\n        return _recognise",
        "    if same and batch.batch_id < 0:\n        return _recognise",
        "a batch was written again after a restart",
    ),
    Hole(
        "files that another compaction took",
        "state/commit/conflict.py",
        "        or check_deletes(live, delta_entries)\n",
        "",
        "two compactions of a bucket left rows twice",
    ),
    Hole(
        "files of tags",
        "state/store/maintenance/expiry.py",
        "steps = self._plan(begin, end, tags, notes.pins.values())",
        "steps = self._plan(begin, end, [], notes.pins.values())",
        "expiry removed files that a tag needs",
    ),
    Hole(
        "pins",
        "state/store/catalog/pins.py",
        "        _wait_for_removals(notebook, pin, world)\n        yield",
        "        notebook.drop(name)\n        yield",
        "issue 28 A 2, 3: a tag or branch named files that expired while it was made",
    ),
    Hole(
        "last look of an orphan removal",
        "state/store/maintenance/orphans.py",
        "return is_temporary(file) or own_name(file) not in used.names",
        "return True",
        "orphan removal took files that snapshots name",
    ),
)


def find(hole: Hole, seeds: int) -> str | None:
    """The first seed that fails with the hole, and how; None where none of so many does."""
    with tempfile.TemporaryDirectory(prefix="hole-") as folder:
        for name in _COPIED:
            skipped = shutil.ignore_patterns("golden", "__pycache__", "java", "bench")
            shutil.copytree(ROOT / name, Path(folder) / name, symlinks=True, ignore=skipped)
        module = Path(folder) / hole.module
        text = module.read_text()
        if text.count(hole.text) != 1:
            raise ValueError(f"{hole.name}: {hole.module} has its text {text.count(hole.text)} times")
        module.write_text(text.replace(hole.text, hole.instead))
        paths = os.pathsep.join((f"{folder}/src", folder))
        done = subprocess.run(
            [sys.executable, "-c", _FIND, str(seeds)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 3:
            return None
        return done.stdout.strip() or done.stderr.strip()[-300:]


def main() -> int:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    wanted = sys.argv[2:]
    missed = 0
    for hole in HOLES:
        if wanted and hole.name not in wanted:
            continue
        found = find(hole, seeds)
        missed += found is None
        print(f"{hole.name}: {'not found' if found is None else f'found by seed {found}'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
