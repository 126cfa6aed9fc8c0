"""Turns a task into the function that Spark's Python workers call, and saves work that a worker would repeat for each
task.

After each task a worker collects garbage among all its objects. Arrow, pandas and bucketline's modules have a hundred
thousand objects, and the collection takes longer than many a task. Loaded modules stay as long as the worker, so their
objects are excluded from the collection.

Before each task a worker makes Python's import system forget its caches. Up to Python 3.12 the importer of an archive
then reads the archive's table of contents again. For the archives that Spark puts on the path, reading takes a tenth of
a second for each task, which is longer than the task of a small batch. An importer that is not in Python's cache of
importers reads nothing again. The next import of a new module makes another importer, which uses the table of contents
that was read before.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import PurePath
from zipimport import zipimporter

import pyarrow as pa

from bucketline.state.installed import check_installed

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

DAEMON = "bucketline.streaming.tasks.daemon"
"""The module from which Spark can fork its workers. It is named and not imported, because it is a program of
its own.
"""

_LOADING_TASKS = 3
"""During the first tasks of a process, up to this number, modules are still being loaded."""

_begun = count()
"""Counts the tasks that this process has begun."""

_OWN_ARCHIVES = ("pyspark*.zip", "py4j-*.zip", "spark-core_*.jar")
"""Spark's own entries on a worker's path. They do not change while the worker lives; entries that a job adds may
change.
"""


def in_worker(task: Task) -> Task:
    """Returns a plain function that calls `task`, a function on record batches that runs in a Spark worker. Spark
    inspects the signature of the function that `mapInArrow` gets, so this function must be a plain one.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        return task(batches)

    return run


def begin_task() -> None:
    """Prepares the worker process for a task that begins. Raises OptionError if a package that is installed on the
    executor is too old.
    """
    check_installed()
    forget_archives()
    spare_what_is_loaded()


def load_lazy_modules() -> None:
    """Loads pandas, if it is installed. Arrow loads pandas when it converts its first Python value. Without this
    function, the first task of each worker would have to wait for this.
    """
    pa.array([0])


def spare_what_is_loaded() -> None:
    """Excludes the existing objects from garbage collection, in the first tasks of a process, while modules are still
    being loaded.

    Garbage is collected before that, because excluded garbage would never be freed.
    """
    if next(_begun) < _LOADING_TASKS:
        gc.collect()
        gc.freeze()


def forget_archives() -> None:
    """Removes the importers of Spark's own archives, and of folders inside them, from Python's cache of importers."""
    cached = sys.path_importer_cache
    for path, importer in list(cached.items()):
        if isinstance(importer, zipimporter) and any(PurePath(importer.archive).match(a) for a in _OWN_ARCHIVES):
            del cached[path]
