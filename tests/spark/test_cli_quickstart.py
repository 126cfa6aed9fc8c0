"""`bucketline quickstart` as a person runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from bucketline.state.store.table.table import open_table

pytestmark = pytest.mark.spark


def test_quickstart_streams_compacts_and_shows_the_table_it_promised(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bucketline.streaming", "quickstart", "--directory", str(tmp_path / "q")]
    options = ["--batches", "4", "--events", "60"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "240 events in 4 batches make" in done.stdout and "exactly these" in done.stdout
    assert "no compaction is due" in done.stdout and "commit_kind" in done.stdout and "L0" in done.stdout
    assert done.stderr.count("\nbatch ") == 4
    table = open_table(str(tmp_path / "q" / "shop.db" / "orders"))
    kinds = table.snapshots()["commit_kind"].to_pylist()
    assert kinds.count("APPEND") == 4 and kinds[-1] == "COMPACT"
    again = subprocess.run([*command, *options], capture_output=True, text=True, timeout=300, check=False)
    assert (again.returncode, again.stderr.splitlines()[0][:16]) == (3, "error [OPTION]: ")
