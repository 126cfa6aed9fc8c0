"""Operations whose snapshot expires while they are planned, or while tasks elsewhere run: they are planned again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.errors import StorageError
from bucketline.state.store.engine.engine import Jobs, Outcome, Parts
from bucketline.state.store.engine.local_engine import LocalEngine
from bucketline.state.store.table.compact import compact_table
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.state.store.write.stages import Stages
from tests.support.storage.interleaved import stopped_at

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
VECTORS = {"bucket": "1", "deletion-vectors.enabled": "true"}


@dataclass(frozen=True)
class Case:
    options: Mapping[str, str]
    act: Callable[[Table], object]
    rows: Mapping[int, int]
    key: tuple[str, ...] = ("id",)


def rows(*ids: int, value: int = 0) -> pa.Table:
    return pa.table({"id": ids, "v": [value] * len(ids)}).cast(COLUMNS)


def merge(table: Table) -> None:
    table.merge(rows(2, 3, value=9), on=["id"], when_matched={"v": 9})


UNTOUCHED = {1: 0, 2: 0, 3: 0, 7: 5}
CASES = {
    "write, HASH index": Case({"bucket": "-1"}, lambda t: t.write(rows(1, value=9)), {**UNTOUCHED, 1: 9}),
    "write, deletion vectors": Case(VECTORS, lambda t: t.write(rows(1, value=9)), {**UNTOUCHED, 1: 9}),
    "delete": Case(VECTORS, lambda t: t.delete("id = 1"), {2: 0, 3: 0, 7: 5}),
    "update": Case(VECTORS, lambda t: t.update("id = 1", {"v": 9}), {**UNTOUCHED, 1: 9}),
    "merge": Case(VECTORS, merge, {**UNTOUCHED, 2: 9, 3: 9}),
    "delete without a key": Case(
        {"deletion-vectors.enabled": "true"}, lambda t: t.delete("id = 1"), {2: 0, 3: 0, 7: 5}, key=()
    ),
    "compact": Case(VECTORS, lambda t: t.compact(), UNTOUCHED),
    "rescale": Case(VECTORS, lambda t: t.rescale(3), UNTOUCHED),
}


def made(path: Path, case: Case) -> Table:
    """A table with rows 1 to 3 whose newest snapshot has an index manifest."""
    table = create_table(str(path / "t"), COLUMNS, case.key, options=case.options)
    if not case.key:
        table.write(rows(1, 2, 3, 4))
        table.delete("id = 4")
    else:
        table.write(rows(1, 2, 3))
        table.write(rows(1))
    return open_table(table.path)


def replaced(table: Table) -> None:
    """Others write row 7, and only the newest snapshot is left."""
    other = open_table(table.path)
    other.write(rows(7))
    other.update("id = 7", {"v": 5})
    other.compact()
    other.expire_snapshots(retain_min=1, retain_max=1)


@pytest.mark.parametrize("name", CASES)
def test_an_operation_whose_index_manifest_is_gone_is_planned_again(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    table = made(tmp_path / "counted", case)
    with stopped_at(None) as counted:
        case.act(table)
    at = next(n for n, call in enumerate(counted.log, 1) if "/index-manifest-" in call)
    table = made(tmp_path / "stopped", case)
    with stopped_at(at, partial(replaced, table)) as stopped:
        case.act(table)
    assert stopped.where.startswith("read ") and not Path(stopped.where.partition(" ")[2]).exists()
    found = open_table(table.path)
    assert {r["id"]: r["v"] for r in found.to_arrow().to_pylist()} == case.rows
    assert not found.doctor(rows=True)


@dataclass(frozen=True, slots=True)
class TellsOnlyText(LocalEngine):
    """An engine whose tasks run elsewhere: of an error of a task it knows only the class and the message."""

    meanwhile: list[Callable[[], None]] = field(default_factory=list)

    def run(self, work: Stages[Parts] | Jobs) -> Outcome:
        while self.meanwhile:
            self.meanwhile.pop()()
        try:
            return LocalEngine.run(self, work)
        except StorageError as e:
            raise StorageError(e.message) from None


def test_a_compaction_in_tasks_elsewhere_whose_snapshot_has_expired_is_planned_again(tmp_path: Path) -> None:
    table = made(tmp_path, CASES["compact"])
    engine = TellsOnlyText()
    engine.meanwhile.append(partial(replaced, table))
    compact_table(handle_of(table), engine=engine)
    assert not engine.meanwhile
    assert {r["id"]: r["v"] for r in open_table(table.path).to_arrow().to_pylist()} == UNTOUCHED
