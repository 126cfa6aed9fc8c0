"""The same stream of upserts into tables of each bucket mode, and of two table modes, against fixed buckets.

All run in one session: the workers' peak is the highest of a mode and those before it. `$BUCKETLINE_BENCH_MODES` names
some of the modes, with commas. The details have the CPU seconds of all processes too: on a shared machine they say more
than the clock.
"""

import shutil
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq

from bucketline.state.format.entries import CommitKind, FileKind
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.table.table import create_table
from bucketline.streaming.batch.sink import TableSink
from tests.bench.engine import input_stream, session, timed_run
from tests.bench.result import Result, Size, asked, folder_bytes, paired_ratio
from tests.bench.rows import COLUMNS, upserts
from tests.bench.watch import WorkerWatch, cpu_seconds

BATCHES = 10
BATCH_ROWS = 500_000
KEYS = 2_000_000
FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Mode:
    """What a table sets, and the time that is allowed, in times of fixed buckets. With `adds_rewriting` in times of
    fixed buckets and pyarrow together, which reads the files that were compacted, and writes their rows back.
    """

    at_most: float
    bucket: str = "4"
    partition: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    adds_rewriting: bool = False


MODES: Mapping[str, Mode] = {
    FIXED: Mode(1.0),
    "dynamic": Mode(1.3, "-1"),
    "cross-partition": Mode(2.0, "-1", ("status",)),
    "postpone": Mode(0.8, "-2"),
    "deletion vectors": Mode(1.3, options={"deletion-vectors.enabled": "true"}),
    "copy on write": Mode(1.1, options={"full-compaction.delta-commits": "1"}, adds_rewriting=True),
}


@dataclass(frozen=True, slots=True)
class Spent:
    """What each turn took: by the clock, and CPU time of all processes, in seconds; what was allowed of both, which
    `Mode` says; and the parts of it that pyarrow took."""

    clock: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    allowed: list[float] = field(default_factory=list)
    allowed_cpu: list[float] = field(default_factory=list)
    pyarrow_cpu: list[float] = field(default_factory=list)


def run(size: Size, root: Path) -> Sequence[Result]:
    modes = {name: MODES[name] for name in dict.fromkeys((FIXED, *asked("BUCKETLINE_BENCH_MODES", MODES)))}
    rows, keys = size.rows(BATCH_ROWS), size.rows(KEYS)
    stream = input_stream(root / "source", upserts(BATCHES, rows, key_range=keys, seed=3))
    spent = {mode: Spent() for mode in modes}
    peaks = dict.fromkeys(modes, 0)
    written = dict.fromkeys(modes, 0)
    with session(root) as spark:
        for turn in range(-1, size.repeats):
            for name, mode in modes.items():
                if turn < 0 and name != FIXED:
                    continue
                path = root / f"{name}-{turn}".replace(" ", "-")
                options = {"bucket": mode.bucket, **mode.options}
                table = create_table(str(path / "t"), COLUMNS, ("id",), mode.partition, options=options)
                sink = TableSink(table.path, {"local-directory": str(path / "local")})
                before = cpu_seconds()
                with WorkerWatch() as watch:
                    found = timed_run(stream, spark, sink, path / "checkpoint")
                # The first turn warms up.
                if turn >= 0:
                    of = spent[name]
                    of.clock.append(found)
                    of.cpu.append(cpu_seconds() - before)
                    before = cpu_seconds()
                    more = rewriting_seconds(table.path, path / "rewritten") if mode.adds_rewriting else 0
                    of.pyarrow_cpu.append(cpu_seconds() - before if mode.adds_rewriting else 0)
                    of.allowed.append(spent[FIXED].clock[-1] + more)
                    of.allowed_cpu.append(spent[FIXED].cpu[-1] + of.pyarrow_cpu[-1])
                    peaks[name] = max(peaks[name], watch.peak_bytes)
                    written[name] = folder_bytes(path / "t")
                shutil.rmtree(path)
    return [
        Result(
            name=f"5 {name}",
            what=f"ten batches of upserts into a {name} table, against fixed buckets"
            + (" and pyarrow rewriting the files" if mode.adds_rewriting else ""),
            rows=BATCHES * rows,
            seconds=median(spent[name].clock),
            other_seconds=median(spent[name].allowed),
            written_bytes=written[name],
            worker_peak_bytes=peaks[name],
            ratio=paired_ratio(spent[name].clock, spent[name].allowed),
            at_most=mode.at_most,
            memory_limit_bytes=1 << 30,
            detail={
                **asdict(spent[name]),
                "cpu ratio": paired_ratio(spent[name].cpu, spent[name].allowed_cpu),
                FIXED: spent[FIXED].clock,
            },
        )
        for name, mode in modes.items()
        if name != FIXED
    ]


def rewriting_seconds(path: str, out: Path) -> float:
    """Seconds that pyarrow takes to do what the compactions of a table did, but for merging: to read the files of a
    bucket that they rewrote, and to write all of their rows back, two buckets at a time.
    """
    table = open_handle(path)
    compactions: list[list[list[Path]]] = []
    for number in table.snapshot_store.ids():
        snapshot = table.snapshot_store.get(number)
        if snapshot is None or snapshot.commit_kind is not CommitKind.COMPACT:
            continue
        entries = table.manifests.delta_entries(snapshot)
        kept = {e.file.file_name for e in entries if e.kind is FileKind.ADD}
        buckets: dict[int, list[Path]] = defaultdict(list)
        for e in entries:
            if e.kind is FileKind.DELETE and e.file.file_name not in kept:
                buckets[e.bucket].append(Path(path) / f"bucket-{e.bucket}" / e.file.file_name)
        compactions.append(list(buckets.values()))
    out.mkdir()
    started = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        for compaction in compactions:
            places = [out / str(number) for number in range(len(compaction))]
            list(pool.map(_rewrite, compaction, places))
    return time.monotonic() - started


def _rewrite(files: Sequence[Path], out: Path) -> None:
    with pq.ParquetWriter(out, pq.read_schema(files[0]), compression="zstd", compression_level=1) as writer:
        for file in files:
            writer.write_table(pq.read_table(file, use_threads=False))
