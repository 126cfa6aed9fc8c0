"""How often a batch goes back to the table's files on the driver: decide, commit and settle share one look at it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bucketline.state.store.storage.local_io import LocalIO
from tests.support.storage.recorder import Recorder
from tests.unit.test_recorded_writes import KINDS, Shop

ASKS = ("read", "read_optional", "read_unchanging", "list_names", "list_files", "exists", "publish", "overwrite")
MOST_RETURNS = 4


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The rooms that had `catalog` ask storage, one after the other."""
    asked: list[str] = []

    def watched(name: str) -> Any:
        real = getattr(LocalIO, name)

        def call(self: LocalIO, *given: Any) -> Any:
            names = list(_rooms_above(sys._getframe(1)))
            if "catalog" in names:
                asked.append(next((n for n in names if n not in ("catalog", "storage")), "caller"))
            return real(self, *given)

        return call

    for name in ASKS:
        monkeypatch.setattr(LocalIO, name, watched(name))
    yield asked


def _rooms_above(frame: Any) -> Iterator[str]:
    while frame is not None:
        _, of_store, path = frame.f_code.co_filename.rpartition("/state/store/")
        if of_store:
            yield path.partition("/")[0]
        elif "/streaming/" in path and "/tests/" not in path:
            yield "streaming"
        frame = frame.f_back


@pytest.mark.parametrize("kind", ["fixed", "fixed, lookup", "first-row", "postpone", "append"])
def test_a_batch_returns_to_catalog_at_most_four_times(tmp_path: Path, rooms: list[str], kind: str) -> None:
    """To look at the table, for what it knows of the stream, for the commit, and for what is due after it."""
    for returns in _returns(tmp_path, kind, rooms):
        assert len(returns) <= MOST_RETURNS, returns
        assert returns[0] == "write" and "commit" in returns


@pytest.mark.parametrize("kind", ["fixed, vectors", "dynamic"])
def test_tables_with_index_files_return_once_more_to_list_them(tmp_path: Path, rooms: list[str], kind: str) -> None:
    for returns in _returns(tmp_path, kind, rooms):
        assert len(returns) <= MOST_RETURNS + 1, returns


def _returns(path: Path, kind: str, rooms: list[str]) -> Iterator[list[str]]:
    shop = Shop(path, KINDS[kind], Recorder(str(path)))
    run = shop._started({})
    for batch_id in range(6):
        rooms.clear()
        shop._batch(run, batch_id, raced=False)
        if batch_id > 0:
            yield [room for at, room in enumerate(rooms) if at == 0 or rooms[at - 1] != room]
