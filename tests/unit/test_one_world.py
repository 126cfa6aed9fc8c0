"""Time, names and chance come from one value, `World`: nothing below an entry point takes one of them alone, or the
machine's."""

import ast
import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketline.state import determinism
from bucketline.state.determinism import NumberedIds, World
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from tests.support.tables.commit_table import CountedPause

ROOT = Path(__file__).parents[2]
SOURCES = {"Clock", "IdSource", "Random", "Pause", "Stopwatch"}
MACHINES = {"SYSTEM_CLOCK", "SYSTEM_IDS", "SYSTEM_RANDOM", "SYSTEM_PAUSE", "SYSTEM_STOPWATCH"}
OF_THE_MACHINE = {
    "state/store/key_index/key_index.py",  # waits for threads of RocksDB
    "state/store/storage/objects/aws_keys.py",  # tells a client of the store when keys end
    "streaming/cli/status.py",
    "streaming/cli/stream_lines.py",
}
"""What is about the machine, whatever world a table is in."""


def imported() -> Iterator[tuple[str, str]]:
    for folder in ("conf", "state", "streaming"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module == "bucketline.state.determinism":
                    yield from ((str(path.relative_to(ROOT)), a.name) for a in node.names)


def test_nothing_takes_a_source_by_itself() -> None:
    assert [place for place in imported() if place[1] in SOURCES] == []


def test_only_what_is_about_the_machine_takes_its_sources() -> None:
    assert {name for name, source in imported() if source in MACHINES} == OF_THE_MACHINE


class Halves:
    def fraction(self) -> float:
        return 0.5


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A world of its own, in a process whose machine has no time, no names and no chance."""

    def refuse(self: object, *given: object) -> Any:
        raise AssertionError("this comes from the machine")

    for source, name in (
        (determinism.SystemClock, "now_ms"),
        (determinism.SystemClock, "local_ms"),
        (determinism.SystemIds, "new_uuid"),
        (determinism.SystemRandom, "fraction"),
        (determinism.SystemPause, "wait_ms"),
        (determinism.SystemStopwatch, "elapsed_ms"),
    ):
        monkeypatch.setattr(source, name, refuse)
    pause = CountedPause()
    ids = NumberedIds("5e1ec7ed-0000-4000-8000-000000000001")
    return World(pause.clock, ids, Halves(), pause, Watch())


class Watch:
    def elapsed_ms(self) -> int:
        return 0


COLUMNS = "p STRING NOT NULL, id INT NOT NULL, v BIGINT"
KINDS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "fixed": (("p", "id"), {"bucket": "2"}),
    "vectors": (("p", "id"), {"bucket": "2", "deletion-vectors.enabled": "true"}),
    "dynamic": (("p", "id"), {"bucket": "-1"}),
    "cross-partition": (("id",), {"bucket": "-1"}),
    "postpone": (("p", "id"), {"bucket": "-2"}),
    "append": ((), {"deletion-vectors.enabled": "true"}),
}


def rows(number: int) -> pa.Table:
    ids = range(number, number + 6)
    columns = {"p": ["ab"[i % 2] for i in ids], "id": pa.array(ids, pa.int32()), "v": pa.array(ids, pa.int64())}
    return pa.table(columns)


def lives(table: Table) -> None:
    """All that keeps a table going and tidy."""
    for number in range(3):
        table.write(rows(number))
    table.update("id = 3", {"v": 9})
    table.delete("id = 4")
    table.merge(rows(5), ["id", "p"] if "id" in table.partition_by else list(table.primary_key) or ["p", "id"])
    table.compact()
    table.create_tag("kept", retained=timedelta(hours=1))
    table.create_branch("side", "kept")
    table.add_column("w", "INT")
    table.overwrite(rows(1).append_column("w", rows(1)["id"]))
    table.rollback_to("kept")
    table.fast_forward("side")
    table.delete_branch("side")
    table.write(rows(8).append_column("w", rows(8)["id"]) if "w" in table.refreshed().schema.names else rows(8))
    table.expire_snapshots(retain_min=1, retain_max=1, older_than=timedelta())
    table.delete_tag("kept")
    table.remove_orphan_files(dry_run=False, older_than=timedelta(), no_writers=True)
    table.drop_partitions([{"p": "a"}])
    table.truncate()


@pytest.mark.parametrize("kind", KINDS)
def test_the_machine_is_not_asked(tmp_path: Path, world: World, kind: str) -> None:
    key, options = KINDS[kind]
    path = str(tmp_path / "s.db" / "t")
    own = {"tag.automatic-creation": "process-time", "tag.creation-period": "hourly", **options}
    made = create_table(path, COLUMNS, key, ("p",), own, world=world)
    assert handle_of(made).world is world
    lives(open_table(path, options={"local-directory": str(tmp_path / "local")}, world=world))


def test_rescale_and_expiry_of_partitions_do_not_ask_it(tmp_path: Path, world: World) -> None:
    path = str(tmp_path / "s.db" / "t")
    table = create_table(path, COLUMNS, ("p", "id"), ("p",), {"bucket": "1"}, world=world)
    table.write(rows(0))
    assert table.rescale(2) == 2
    assert table.expire_partitions(timedelta(days=1)) == ()


def test_the_same_world_makes_the_same_files(tmp_path: Path, world: World) -> None:
    """Ids in files are those of the world, so that two worlds of one seed leave the same names and bytes."""
    names = []
    for number in range(2):
        again = World(
            CountedPause().clock,
            NumberedIds("5e1ec7ed-0000-4000-8000-000000000002"),
            Halves(),
            world.pause,
            world.stopwatch,
        )
        path = tmp_path / str(number) / "s.db" / "t"
        table = create_table(str(path), COLUMNS, ("p", "id"), ("p",), {"bucket": "2"}, world=again)
        table.write(rows(0))
        table.write(rows(3))
        table.compact()
        names.append({str(f.relative_to(path)): f.read_bytes() for f in sorted(path.rglob("*")) if f.is_file()})
    assert names[0] == names[1] and len(names[0]) > 10


def test_threads_that_share_numbered_ids_never_get_the_same() -> None:
    ids = pickle.loads(pickle.dumps(NumberedIds("5e1ec7ed-0000-4000-8000-000000000003")))
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            drawn = list(threads.map(lambda _: [ids.new_uuid() for _ in range(500)], range(8)))
    finally:
        sys.setswitchinterval(switch)
    assert len({name for names in drawn for name in names}) == 8 * 500
    again = pickle.loads(pickle.dumps(ids))
    assert again.new_uuid() == ids.new_uuid()
