"""The blocks of the README and the docs that need Spark run as they stand."""

from pathlib import Path
from typing import Any

import pytest

from bucketline.state.store.table.table import open_table
from tests.support.readme import PAGES, blocks, run

pytestmark = pytest.mark.spark


def test_the_python_with_spark_runs_as_it_stands(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sinks = [block for page in PAGES for block in blocks("python", page) if block.needs_spark]
    assert len(sinks) == 3
    for block in sinks:
        # Each is to be pasted alone.
        run([block], {})
    assert open_table(str(tmp_path / "warehouse/shop.db/customers")).snapshots().num_rows == 2
