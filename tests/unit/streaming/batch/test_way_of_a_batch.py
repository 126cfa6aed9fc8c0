"""The way of a batch on the driver: it asks for metadata when it decides, commits and settles, and no more."""

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType

import pyarrow as pa
import pytest

from bucketline.state.store.table.table import create_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from tests.support.spark.tasks import Cluster

ROOT = Path(__file__).parents[4]
CATALOG = "state/store/catalog"
MOST_RETURNS = 4
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("pt", pa.int32())])
KINDS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "fixed": (("id",), {"bucket": "2"}),
    "fixed, compacts each batch": (("id",), {"bucket": "2", "full-compaction.delta-commits": "1"}),
    "fixed, changelog of lookups": (("id",), {"bucket": "2", "changelog-producer": "lookup"}),
    "dynamic": (("id",), {"bucket": "-1"}),
    "postpone": (("id",), {"bucket": "-2"}),
    "append": ((), {}),
}


def room(code: CodeType) -> str | None:
    """The folder of the package that a function lies in; None for all others."""
    for top in ("conf", "state", "streaming"):
        _, found, below = code.co_filename.rpartition(f"/{top}/")
        if found and Path(code.co_filename).resolve() == ROOT / top / below:
            return f"{top}/{below}".rpartition("/")[0]
    return None


class Visits:
    """Who called into the catalog, call by call. Names of folders, and the stores that a handle makes, ask nothing."""

    def __init__(self) -> None:
        self.callers: list[str] = []
        self._tasks = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        code = frame.f_code
        if code.co_name == "_attempts" and code.co_filename.endswith("tests/support/spark/tasks.py"):
            self._tasks += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not self._tasks and room(code) == CATALOG and _asks(code):
            callers = list(_rooms_above(frame))
            if CATALOG not in callers:
                self.callers.append(next(c for c in callers if c != "state/store/storage"))


def _asks(code: CodeType) -> bool:
    is_value = code.co_filename.endswith("/table_handle.py") and code.co_name != "refreshed"
    return not is_value and code.co_name != "__init__"


def _rooms_above(frame: FrameType) -> Iterator[str]:
    above = frame.f_back
    while above is not None:
        found = room(above.f_code)
        if found is not None:
            yield found
        above = above.f_back


@contextmanager
def visits() -> Iterator[Visits]:
    found = Visits()
    sys.setprofile(found)
    try:
        yield found
    finally:
        sys.setprofile(None)


def write(path: str, options: Mapping[str, str], number: int) -> None:
    identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
    data = pa.table({"id": range(50), "v": [number] * 50, "pt": pa.array([(number + i) % 3 for i in range(50)])})
    frame = Cluster(random.Random(number), 4).frame(data.cast(COLUMNS), 2)
    TableSink(path, options, decode=DecodedRows).write(frame, identity)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_comes_back_to_the_metadata_few_times(tmp_path: Path, kind: str) -> None:
    key, options = KINDS[kind]
    path = str(tmp_path / "shop.db" / "t")
    create_table(path, COLUMNS, key, options=options)
    own = {"local-directory": str(tmp_path / "local")}
    for number in range(4):
        write(path, own, number)
    with visits() as found:
        write(path, own, 4)
    way = [caller for caller, _ in groupby(found.callers)]
    assert "state/store/commit" in way, "the batch was committed"
    assert len(way) - 1 <= MOST_RETURNS, way
