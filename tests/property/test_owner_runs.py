"""Runs of owners carry what runs of single buckets carry: the files come out equal, byte for byte, whatever the merge
engine, the bucket mode, the sizes of flushes, runs and record batches, and however the runs arrive. The judge seals
each bucket by itself, and merges."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.bucket.accept_rows import AcceptedRows
from bucketline.state.commit.message import CommitMessage
from bucketline.state.determinism import NumberedIds, World
from bucketline.state.lsm.merge.feeds import MixedKey
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.engine import NO_ROWS
from bucketline.state.store.table.table import create_table
from bucketline.state.store.write import run_passes
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.owned import owner_sealer
from bucketline.state.store.write.owned.owner_runs import RunPlace, batches_of, parts_of_runs
from bucketline.state.store.write.owned.owner_sealer import OwnerSealer
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.sealed_runs import RunForm, RunSealer, SealPlan
from bucketline.state.store.write.stages import Stages
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_buckets import write_buckets
from bucketline.state.store.write.write_plan import Workers, WriteScope
from bucketline.streaming.tasks.placement import Destination
from bucketline.streaming.tasks.wire import RUN, RUNS, Routed, pack, read_routed, routed_row, unpack
from tests.support.models.sweeps import share_of

COLUMNS = pa.schema(
    [
        pa.field("p", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("k", pa.string(), nullable=False),
        ("s", pa.string()),
        ("n", pa.int64()),
    ]
)
ENGINES: Mapping[str, dict[str, str]] = {
    "deduplicate": {},
    "ignore-delete": {"ignore-delete": "true"},
    "sequence field": {"sequence.field": "n"},
    "descending": {"sequence.field": "n", "sequence.field.sort-order": "descending"},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {
        "merge-engine": "aggregation",
        "fields.s.aggregate-function": "listagg",
        "fields.n.aggregate-function": "sum",
    },
    "first-row": {"merge-engine": "first-row"},
    "input": {"changelog-producer": "input"},
}
TAKES_DELETES = ("deduplicate", "ignore-delete", "sequence field", "descending", "input")
Batch = tuple[pa.Table, pa.Array, np.ndarray]


@dataclass(frozen=True)
class Drawn:
    """A table, the rows of its first tasks, and how they are sealed and kept."""

    key: tuple[str, ...]
    partitioned: bool
    options: Mapping[str, str]
    tasks: list[list[Batch]]
    budget_bytes: int
    run_bytes: int
    form: RunForm
    buffer_bytes: int


def drawn(draw: random.Random, engine: str, mode: str) -> Drawn:
    deletes = engine in TAKES_DELETES and mode != "append"
    key = {"append": ()}.get(mode, draw.choice((("p", "id"), ("p", "k"), ("p", "id", "k"))))
    options = {} if mode == "append" else dict(ENGINES[engine])
    options["bucket"] = {"postpone": "-2"}.get(mode, str(draw.choice((1, 3, 40))))
    if mode == "append":
        options["bucket-key"] = "id"
    keys, partitions = draw.choice((5, 60, 2000)), draw.choice((1, 4))
    tasks = [
        [batch(draw, draw.choice((1, 7, 90, 400)), keys, partitions, deletes) for _ in range(draw.randint(0, 5))]
        for _ in range(draw.randint(1, 4))
    ]
    return Drawn(
        key,
        draw.random() < 0.5,
        {**options, "file.format": "avro", "file.compression": "none"},
        tasks,
        draw.choice((1, 5_000, 1 << 20)),
        draw.choice((200, 3_000, 1 << 20)),
        draw.choice((RunForm.PACKED, RunForm.PLAIN)),
        draw.choice((0, 20_000, 1 << 30)),
    )


def batch(draw: random.Random, count: int, keys: int, partitions: int, deletes: bool) -> Batch:
    ids = [draw.randrange(keys) for _ in range(count)]
    rows = {
        "p": [f"p{i % partitions}" for i in ids],
        "id": ids,
        "k": ["ab"[: i % 3] * (i % 4) + str(i) for i in ids],
        "s": [None if draw.random() < 0.2 else "x" * draw.choice((1, 3, 50)) for _ in ids],
        "n": [None if draw.random() < 0.2 else draw.randrange(5) for _ in ids],
    }
    kinds = [draw.choice((0, 0, 2, 3)) if deletes else 0 for _ in ids]
    feeds = np.sort(np.array([i % 2 if draw.random() < 0.999 else 2 for i in ids]))
    return pa.table(rows, schema=COLUMNS), pa.array(kinds, pa.int8()), feeds


def sealed_by_bucket(of: Drawn, seal: SealPlan, to: Destination) -> Iterator[tuple[Routed, MixedKey | None]]:
    for origin, batches in enumerate(of.tasks):
        sealer = RunSealer(seal, origin=origin)
        for rows, kinds, feeds in batches:
            for run in sealer.add(AcceptedRows(rows, kinds, None, feeds)):
                yield Routed(to.task(run.partition, run.bucket), RUN, run), sealer.mixed
        for run in sealer.finish():
            yield Routed(to.task(run.partition, run.bucket), RUN, run), sealer.mixed


def sealed_by_owner(of: Drawn, seal: SealPlan, to: Destination) -> Iterator[tuple[Routed, MixedKey | None]]:
    for origin, batches in enumerate(of.tasks):
        sealer = OwnerSealer(seal, to, origin=origin)
        for rows, kinds, feeds in batches:
            for run in sealer.add(AcceptedRows(rows, kinds, None, feeds)):
                yield Routed(run.owner, RUNS, run), sealer.mixed
        for run in sealer.finish():
            yield Routed(run.owner, RUNS, run), sealer.mixed


Sealed = Callable[[Drawn, SealPlan, Destination], Iterator[tuple[Routed, MixedKey | None]]]


def written(path: Path, of: Drawn, sealed: Sealed, draw: random.Random) -> Any:
    """What became of the rows: the files with their rows by bucket, the rows taken in, and whether a key was mixed."""
    partition = ("p",) if of.partitioned else ()
    table = create_table(str(path / "shop.db" / "t"), COLUMNS, of.key, partition, options=dict(of.options))
    session = table_at(open_handle(table.path), {"local-directory": str(path / "spill")}).refreshed()
    scope = WriteScope(CompactTrigger.NONE, "u", Workers(3, 3))
    stages: Stages[Any] = session.plan.mode.stages(session.plan, session, scope, NO_ROWS)
    seal = replace(stages.seal, budget_bytes=of.budget_bytes, run_bytes=of.run_bytes, form=of.form)
    to = Destination(draw.randint(1, 3), stages.assigners)
    mixed = list[MixedKey]()
    access = replace(stages.write.write.access, world=World(ids=NumberedIds("0" * 32)))
    stage = replace(stages.write, write=replace(stages.write.write, mixed=mixed.append, access=access))
    sent: list[list[Any]] = [[] for _ in range(to.task_count)]
    for routed, found in sealed(of, seal, to):
        mixed += [] if found is None else [found]
        if draw.random() < 0.5:
            sent[routed.task].append(unpack(pack(routed))[1])
        else:
            sent[routed.task] += [run for _, run in read_routed(routed_row(routed, to.task_count))]
    files, consumed = [], 0
    for runs in sent:
        draw.shuffle(runs)
        packs = of.form is RunForm.PLAIN
        with RunBuffer(budget_bytes=of.buffer_bytes, directory=str(path / "spill"), packs_spills=packs) as buffer:
            for run in runs:
                buffer.add(run)
                consumed += run.consumed_rows
            total = sum(buffer.row_count(b) for b in buffer.buckets())
            assert total == sum(run.row_count for run in runs)
            for made in write_buckets(stage, buffer, threads=draw.choice((1, 3))):
                if isinstance(made, MixedKey):
                    mixed.append(made)
                elif isinstance(made, CommitMessage):
                    files += [
                        (made, f, (made.partition, made.bucket)) for f in (*made.new_files, *made.changelog_files)
                    ]
    found_files = {f.name: f.read_bytes() for f in (path / "shop.db" / "t").rglob("*.avro")}
    contents = sorted(
        (
            b,
            message.total_buckets,
            f.row_count,
            f.min_sequence_number,
            f.max_sequence_number,
            rows_of(found_files[f.file_name]),
        )
        for message, f, b in files
    )
    return contents, consumed, bool(mixed)


def rows_of(data: bytes) -> bytes:
    """An Avro file without the mark that is drawn for it, which stands before each block and at its end."""
    return data.replace(data[-16:], b"")


@pytest.mark.parametrize("mode", ["fixed", "append", "postpone"])
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(share_of(4)))
def test_files_are_those_of_runs_of_single_buckets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, engine: str, mode: str
) -> None:
    draw = random.Random(f"{seed} {engine} {mode}")
    for number in range(2):
        of = drawn(draw, engine, mode)
        with monkeypatch.context() as patched:
            patched.setattr(run_passes, "SMALL_ROWS", -1)
            expected = written(tmp_path / f"{number} by bucket", of, sealed_by_bucket, draw)
        with monkeypatch.context() as patched:
            patched.setattr(owner_sealer, "SHARED_BYTES", draw.choice((1, 500, 128 << 10)))
            patched.setattr(run_passes, "SMALL_ROWS", draw.choice((-1, 20, 4096, 4096)))
            got = written(tmp_path / f"{number} by owner", of, sealed_by_owner, draw)
        assert got == expected


@given(
    st.lists(st.integers(0, 30)), st.integers(1, 40), st.integers(1, 20), st.integers(1, 20)
)  # fmt: skip
def test_runs_and_batches_hold_each_row_once(
    counts: list[int], rows_each: int, shared_rows: int, batch_rows: int
) -> None:
    runs = list(parts_of_runs(list(enumerate(counts)), rows_each))
    rows = [(part.group, part.begins and i == 0) for run in runs for part in run for i in range(part.row_count)]
    assert rows == [(group, i == 0) for group, count in enumerate(counts) for i in range(count)]
    sizes = [sum(part.row_count for part in run) for run in runs]
    assert all(size == rows_each for size in sizes[:-1]) and all(0 < size <= rows_each for size in sizes)
    for run in runs:
        batches, places = batches_of([part.row_count for part in run], shared_rows, batch_rows)
        assert sum(batches) == sum(place.row_count for place in places)
        cells = [(n, i) for n, size in enumerate(batches) for i in range(size)]
        held = [set(of_place(place, batches)) for place in places]
        assert [cell for place in places for cell in of_place(place, batches)] == cells
        users = {n: sum(any(cell[0] == n for cell in cells) for cells in held) for n in range(len(batches))}
        for place, own in zip(places, held, strict=True):
            assert place.is_alone == (place.row_count >= shared_rows)
            assert not place.is_alone or all(users[n] == 1 for n, _ in own)
            assert place.is_alone or len({n for n, _ in own}) == 1


def of_place(place: RunPlace, batches: list[int]) -> Iterator[tuple[int, int]]:
    number, row = place.batch, place.first_row
    for _ in range(place.row_count):
        if row == batches[number]:
            number, row = number + 1, 0
        yield number, row
        row += 1
