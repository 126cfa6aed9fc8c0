"""The blocks of the README and the docs that need Spark run as they stand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bucketline.state.store.table.table import open_table
from bucketline.streaming.reader.data_source import HAS_DATA_SOURCES
from tests.support.pages.readme import PAGES, Block, blocks, cells, make_demo, run

pytestmark = pytest.mark.spark


def test_the_python_with_spark_runs_as_it_stands(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_demo(tmp_path)
    sinks = [block for page in PAGES for block in blocks("python", page) if block.needs_spark]
    assert len(sinks) == 5
    for block in sinks:
        if not HAS_DATA_SOURCES and 'format("bucketline")' in block.code:
            continue
        # Each is to be pasted alone.
        run(_placed([block], tmp_path), {})
    run(_placed(cells(), tmp_path), {})
    assert open_table(str(tmp_path / "warehouse/shop.db/customers")).snapshots().num_rows == 2


def _placed(found: list[Block], folder: Path) -> list[Block]:
    """The code with the whole path of the folder `demo`: Spark's processes were started somewhere else."""
    return [replace(block, code=block.code.replace('"demo', f'"{folder}/demo')) for block in found]
