"""A worker that runs task after task does not read Spark's own archives again for each of them."""

import importlib
import subprocess
import sys
import zipfile
import zipimport
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.store.table.table import create_table
from bucketline.streaming.reader.source import BucketlineSource
from bucketline.streaming.worker import DAEMON, forget_archives, in_worker


def archive(folder: Path, name: str) -> str:
    path = folder / name
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("inside/__init__.py", "")
        out.writestr(f"from_{name.split('.')[0].replace('-', '_')}.py", "VALUE = 1")
    return str(path)


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Archives on the path whose importers are cached: Spark's own, and at last one that a job has added."""
    names = ("pyspark.zip", "py4j-0.10.9.9-src.zip", "spark-core_2.13-4.0.5.jar", "added.zip")
    paths = [archive(tmp_path, name) for name in names]
    monkeypatch.setattr(sys, "path", [*sys.path, *paths])
    places = [*paths, *(f"{path}/inside" for path in paths)]
    for place in places:
        sys.path_importer_cache[place] = zipimport.zipimporter(place)
    yield paths
    for place in places:
        sys.path_importer_cache.pop(place, None)


def test_sparks_own_archives_are_not_read_again(cached: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(zipimport.zipimporter, "invalidate_caches", lambda self: read.append(self.archive))
    forget_archives()
    importlib.invalidate_caches()
    assert [p for p in read if p in cached] == [cached[-1]] * 2


def test_what_is_in_them_can_still_be_imported(cached: list[str]) -> None:
    forget_archives()
    module = importlib.import_module("from_pyspark")
    assert module.VALUE == 1 and cached[0] in sys.path_importer_cache


def test_the_task_is_called_after_that(cached: list[str]) -> None:
    rows = pa.RecordBatch.from_pydict({"a": [1]})
    run = in_worker(lambda batches: (b for b in batches))
    assert list(run(iter([rows]))) == [rows]
    assert not set(cached[:-1]) & set(sys.path_importer_cache)


def test_the_source_for_spark_and_its_readers_do_so_too(cached: list[str], tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    create_table(path, pa.schema([("id", pa.int64())]), (), options={"bucket": "-1"})
    source = BucketlineSource({"path": path})
    assert not set(cached[:-1]) & set(sys.path_importer_cache)
    batch, stream = source.reader(source.schema()), source.streamReader(source.schema())
    for step in (batch.partitions, partial(batch.read, None), partial(stream.read, None)):
        sys.path_importer_cache[cached[0]] = zipimport.zipimporter(cached[0])
        step()
        assert cached[0] not in sys.path_importer_cache


def test_the_first_tasks_spare_the_collection_of_garbage_what_is_loaded() -> None:
    program = (
        "import gc\n"
        "from bucketline.streaming.worker import in_worker\n"
        "task = in_worker(lambda batches: [])\n"
        "counts = []\n"
        "for _ in range(5):\n"
        "    task(iter([]))\n"
        "    counts.append((gc.get_freeze_count(), len(gc.get_objects())))\n"
        "    kept = [[] for _ in range(1000)]\n"
        "print(counts[0][0] > 20_000, counts[-1][1] < 5_000, counts[2][0] >= counts[4][0])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True"]


def test_the_module_that_workers_are_forked_from_loads_what_tasks_need_before_it_serves() -> None:
    program = (
        "import gc, runpy, sys, pyspark.daemon\n"
        "sys.argv = ['x', 'pyspark.worker']\n"
        "def served():\n"
        "    tasks = [f'bucketline.streaming.tasks.{name}' for name in ('read_task', 'write_task')]\n"
        "    print(set(tasks) <= set(sys.modules), 'pandas' in sys.modules, gc.get_freeze_count() > 20_000)\n"
        "pyspark.daemon.manager = served\n"
        f"runpy.run_module({DAEMON!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True"]
