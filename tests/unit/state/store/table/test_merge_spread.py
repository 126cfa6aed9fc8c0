"""What tasks know of a merge's source: its keys, as a bitmap where they are many; rows that come later are of these."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.store.engine.joined import NO_SHARE
from bucketline.state.store.table.merge_source import JoinKey
from bucketline.state.store.table.merge_spread import MOST_HASHES_OF_TASK, SourceShare, TargetShare, look_at_source
from bucketline.state.store.table.table import create_table, handle_of

COLUMNS = pa.schema([("id", pa.int64()), ("v", pa.int64())])


@dataclass(frozen=True)
class TaskRows:
    """Rows of tasks, each of which is looked at alone."""

    tasks: list[pa.Table]
    schema: pa.Schema = COLUMNS
    source: object = None

    def each(self, look: Callable[[Iterable[pa.Table]], Iterator[bytes]]) -> list[bytes]:
        return [payload for task in self.tasks for payload in look([task])]


def rows(ids: np.ndarray) -> pa.Table:
    return pa.table({"id": ids, "v": ids}, schema=COLUMNS)


@pytest.mark.parametrize("count", [1000, MOST_HASHES_OF_TASK + 200_000])
def test_rows_of_the_table_are_sent_if_their_key_may_be_in_the_source(tmp_path: Path, count: int) -> None:
    key = JoinKey(handle_of(create_table(str(tmp_path / "t"), COLUMNS, ["id"])).table_schema, ("id",))
    ids = np.arange(count, dtype=np.int64) * 3
    found = look_at_source(key, TaskRows([rows(ids[: count - 10]), rows(ids[count - 10 :]), rows(ids[:0])]))
    assert (found.hashes.exact is None) == (count > MOST_HASHES_OF_TASK)
    low, high = found.seen.ranges["id"]
    assert (low.as_py(), high.as_py()) == (0, ids[-1])
    table = rows(np.arange(30_000, dtype=np.int64))
    sent = TargetShare(key, 4, found.hashes)(table)[1] != NO_SHARE
    matches = (np.arange(30_000) % 3 == 0) & (np.arange(30_000) <= ids[-1])
    assert sent[matches].all() and sent[~matches].mean() < 0.05
    assert (TargetShare(key, 4, None)(table)[1] != NO_SHARE).all()
    source = SourceShare(found, 4)
    assert (source(rows(ids[-20:]))[1] == TargetShare(key, 4, None)(rows(ids[-20:]))[1]).all()
    with pytest.raises(OptionError, match="the source returns other keys when it is read again"):
        source(rows(ids[-20:] + 1))
