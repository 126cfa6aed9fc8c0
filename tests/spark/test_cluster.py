"""The zip for --py-files on executors that are processes of their own, in a Python without the package."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.cli.ship import build_zip
from tests.support.spark import jvm
from tests.support.spark.streams import FileStream

pytestmark = pytest.mark.spark

JOB = Path(__file__).parents[1] / "support" / "processes" / "cluster_job.py"
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("n", pa.int64())])
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.extraJavaOptions": jvm.QUICK,
    "spark.sql.shuffle.partitions": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
}


def python_without_package(folder: Path) -> Path:
    """An interpreter that finds what this one has installed, but for this package."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    target = Path(
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    )
    for place in {sysconfig.get_paths()[name] for name in ("purelib", "platlib")}:
        for entry in Path(place).iterdir():
            hooks = entry.suffix == ".pth" or entry.name.startswith(("bucketline", "__editable__", "__pycache__"))
            if not hooks and not (target / entry.name).exists():
                (target / entry.name).symlink_to(entry)
    return python


def environment(python: Path, root: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK", "SPARK", "VIRTUAL_ENV"))}
    return {
        **kept,
        jvm.VARIABLE: os.environ[jvm.VARIABLE],
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
        "SPARK_LOCAL_DIRS": str(root / "local"),
        "SPARK_WORKER_DIR": str(root / "work"),
    }


def batch(number: int) -> pa.Table:
    ids = [(i * 7 + number * 3) % 500 for i in range(2000)]
    names = [f"{number}-{i}" for i in range(2000)]
    return pa.table({"id": ids, "name": names, "n": [number] * 2000}, schema=COLUMNS)


def test_executors_that_do_not_have_the_package_get_it_from_the_zip(tmp_path: Path) -> None:
    python = python_without_package(tmp_path / "python")
    env = environment(python, tmp_path)
    told = subprocess.run(
        [python, "-c", "import pyarrow, pyspark, bucketline"], env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert "No module named 'bucketline'" in told.stderr

    package = build_zip(tmp_path / "zip")
    options = {"bucket": "4", "full-compaction.delta-commits": "2"}
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options=options)
    stream = FileStream(tmp_path, "")
    batches = [batch(i) for i in range(2)]
    for rows in batches:
        stream.add(rows)
    settings = [word for key, value in SETTINGS.items() for word in ("--conf", f"{key}={value}")]
    seen_file = tmp_path / "seen.json"
    done = subprocess.run(
        [
            Path(pyspark.__file__).parent / "bin" / "spark-submit",
            *("--master", "local-cluster[2,1,1024]", "--py-files", package, *settings),
            *(JOB, stream.folder, table.path, stream.checkpoint, seen_file),
        ],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]

    seen = json.loads(seen_file.read_text())
    workers = seen["workers"]
    assert all(f"{package.name}/bucketline/" in file for file in (seen["driver"], *(w["file"] for w in workers)))
    assert len({w["folder"] for w in workers}) == 2, "two executors, each with a folder of its own"
    assert len({seen["pid"], *(w["pid"] for w in workers)}) == 3
    assert {w["python"] for w in workers} == {str(python)}

    expected = {r["id"]: r for rows in batches for r in rows.to_pylist()}
    assert {r["id"]: r for r in open_table(table.path).to_arrow().to_pylist()} == expected
    assert table.snapshots()["commit_kind"].to_pylist() == ["APPEND", "APPEND", "COMPACT"]
