"""SQL text over a warehouse in a temporary folder, without Spark."""

from pathlib import Path
from typing import Any

import pytest

import bucketline as bl
from tests.support.pages.sql_text import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs statements, and gives the rows of the last one."""

    def rows(text: str) -> list[Any]:
        found = bl.sql(None, text, str(tmp_path)).to_pylist()
        return [next(iter(row.values())) if len(row) == 1 else tuple(row.values()) for row in found]

    return rows


@pytest.fixture
def orders(run: Run) -> Run:
    """The same, over a table of two partitions, `t`, with four rows."""
    run(
        "CREATE TABLE t (k INT, v DECIMAL(5,1), dt STRING, PRIMARY KEY (k, dt) NOT ENFORCED) PARTITIONED BY (dt) "
        "WITH ('bucket'='1'); INSERT INTO t VALUES (1, 1.5, 'a'), (2, NULL, 'a'), (3, 3, 'b'), (4, 0.5, 'b')"
    )
    return run
