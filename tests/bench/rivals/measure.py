"""Measures all rivals in turns: `repeats` times each, one after the other, each in processes of its own.

A failure of a rival is noted and does not end the others.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bucketline.state.store.table.table import create_table
from tests.bench.rivals import hudi
from tests.bench.rivals.all import RIVALS
from tests.bench.rivals.one import TABLE
from tests.bench.rivals.rival import BATCHES, BUCKETS, WARM_UP, Load
from tests.bench.rows import COLUMNS, upserts
from tests.bench.rust import REQUIREMENT, installed
from tests.support.peers.jars import CHECKOUT
from tests.support.peers.peer import pypaimon_python

ROW_GROUPS = 4
PLAIN = {
    "plain-ours": ("bucketline, `Table.write`", "ours"),
    "plain-pypaimon": ("pypaimon", "pypaimon"),
    "plain-rust": ("pypaimon-rust", "rust"),
}
"""Writers without Spark: title, and name in `plain`."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a rival took in each of its turns, or why it was not run."""

    name: str
    turns: tuple[dict[str, Any], ...] = ()
    not_run: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def measured(names: Sequence[str], load: Load) -> Iterator[list[Measured]]:
    """Yields what each of the named rivals has taken so far, after each turn of each rival. Each turn measures all of
    them once.
    """
    not_run = {name: RIVALS[name].why_not() for name in names if name in RIVALS}
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="bucketline-report-") as root:
        source = Path(root) / "source"
        distinct = _drawn(source, load)
        for turn in range(load.repeats):
            for name in names:
                if not_run.get(name) is not None:
                    continue
                print(f"turn {turn + 1} of {load.repeats}: {name} ...", flush=True)
                try:
                    with tempfile.TemporaryDirectory(dir=root) as folder:
                        turns[name].append(_turn(name, Path(folder), source, load, distinct))
                except subprocess.CalledProcessError as e:
                    not_run[name] = f"failed: {' '.join(map(str, e.cmd[-3:-1]))} ended with {e.returncode}"
                yield [Measured(n, tuple(turns[n]), not_run.get(n)) for n in names]
    yield [Measured(name, tuple(turns[name]), not_run.get(name)) for name in names]


def _drawn(folder: Path, load: Load) -> int:
    """Writes one file for each batch, also for those that warm up and for that after the restart; returns how many ids
    the measured ones have."""
    ids = []
    for kind, count, seed in (("warm", WARM_UP, 2), ("input", BATCHES + 1, 3)):
        (folder / kind).mkdir(parents=True)
        for number, rows in enumerate(upserts(count, load.rows, key_range=load.keys, seed=seed)):
            path = folder / kind / f"{number:06d}.parquet"
            pq.write_table(rows, path, row_group_size=-(-rows.num_rows // ROW_GROUPS))
            # Spark takes files by their time of change.
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
            if kind == "input":
                ids.append(rows["id"])
    return len(pc.unique(pa.chunked_array([chunk for column in ids for chunk in column.chunks])))


def _turn(name: str, folder: Path, source: Path, load: Load, distinct: int) -> dict[str, Any]:
    for kind in ("warm", "input"):
        (folder / kind).mkdir()
    files = sorted((source / "input").iterdir())
    for path in [*(source / "warm").iterdir(), *files[:BATCHES]]:
        os.link(path, folder / path.parent.name / path.name)
    first = _process(name, "stream", folder)
    os.link(files[BATCHES], folder / "input" / files[BATCHES].name)
    again = _process(name, "again", folder)
    keeps_keys = name not in RIVALS or RIVALS[name].keeps_keys
    wanted = distinct if keeps_keys else (BATCHES + 1) * load.rows
    assert again["rows"] == wanted, f"{name} read {again['rows']} rows, there are {wanted}"
    in_bytes = sum(path.stat().st_size for path in files[:BATCHES])
    return {
        **first,
        "again": again,
        "in_bytes": in_bytes,
        "in_rows": BATCHES * load.rows,
        "load": os.getloadavg()[0],
    }


def _process(name: str, what: str, folder: Path) -> dict[str, Any]:
    python, environment = sys.executable, {**os.environ}
    if name in RIVALS:
        module, argument = "one", name
        if RIVALS[name].spark == "3.5":
            python = hudi.python() or python
    else:
        module, argument = "plain", PLAIN[name][1]
        if what == "stream":
            for table in (TABLE, "warehouse/w.db/warm"):
                options = {"bucket": str(BUCKETS), "write-only": "true"}
                create_table(str(folder / table), COLUMNS, ("id",), options=options)
        if argument == "pypaimon":
            python = str(pypaimon_python())
        if argument == "rust":
            environment["PYTHONPATH"] = os.pathsep.join([str(installed()), environment.get("PYTHONPATH", "")])
    command = [python, "-m", f"tests.bench.rivals.{module}", argument, what, str(folder)]
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


VERSIONS = {"plain-rust": REQUIREMENT.partition("==")[2]}
