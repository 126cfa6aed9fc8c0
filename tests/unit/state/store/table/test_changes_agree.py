"""Random writes, deletes, updates, merges, overwrites and compactions of every sort of table, beside a plain list.

`$BUCKETLINE_CHANGES` says how many tables of each sort are tried.
"""

import os
import random
from pathlib import Path

import pytest

from tests.support.models.row_changes import SORTS, ChangedTable

TABLES = int(os.environ.get("BUCKETLINE_CHANGES", "1"))
CHANGES = int(os.environ.get("BUCKETLINE_CHANGE_COUNT", "6"))


@pytest.mark.parametrize("seed", range(TABLES))
@pytest.mark.parametrize("sort", SORTS)
def test_a_table_holds_what_its_changes_leave(sort: str, seed: int, tmp_path: Path) -> None:
    changed = ChangedTable.create(str(tmp_path / "w.db" / "t"), sort, random.Random(f"{sort} {seed}"))
    try:
        for _ in range(CHANGES):
            changed.change()
            changed.check()
    except BaseException as problem:
        problem.add_note("\n".join(changed.log))
        raise
