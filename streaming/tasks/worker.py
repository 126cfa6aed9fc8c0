"""A task as the function that Spark's Python workers call, without what a worker does again for each task.

After each task a worker looks for garbage among all objects that it has: with Arrow, pandas and our modules loaded
these are a hundred thousand, which takes longer than many a task. What is loaded stays as long as the worker, so that
it need not be looked at.

Before each task a worker tells Python's import system to forget what it knows of the path, and up to Python 3.12 the
importer of an archive then reads the archive's table of contents again: for those that Spark puts on the path, a tenth
of a second of each task, which is more than a task of a small batch works. An importer that is not cached is not asked;
the next import of something new makes another, from the table of contents that has been read before.
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
"""The module that Spark can fork its workers from. It is named and not imported: it is a program of its own."""

_LOADING_TASKS = 3
"""Tasks of a process with which it still loads modules."""

_begun = count()
"""Counts the tasks that this process begins."""

_OWN_ARCHIVES = ("pyspark*.zip", "py4j-*.zip", "spark-core_*.jar")
"""What Spark itself puts on a worker's path: it does not change while the worker lives, unlike what a job may add."""


def in_worker(task: Task) -> Task:
    """The task as a plain function, as Spark inspects the signature of what `mapInArrow` is given."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begin_task()
        return task(batches)

    return run


def begin_task() -> None:
    """What is done at the start of each task. Raises OptionError where an executor has a package that is too old."""
    check_installed()
    forget_archives()
    spare_what_is_loaded()


def load_lazy_modules() -> None:
    """Loads what Arrow loads with the first values that it takes: pandas, where that is installed."""
    pa.array([0])


def spare_what_is_loaded() -> None:
    """Takes the objects that exist out of what the collection of garbage looks at, with the first tasks of a process:
    by then most of what a worker loads is there. Garbage is collected before, so that it is not kept."""
    if next(_begun) < _LOADING_TASKS:
        gc.collect()
        gc.freeze()


def forget_archives() -> None:
    """Takes the importers of Spark's own archives, and of folders inside them, out of Python's cache of importers."""
    cached = sys.path_importer_cache
    for path, importer in list(cached.items()):
        if isinstance(importer, zipimporter) and any(PurePath(importer.archive).match(a) for a in _OWN_ARCHIVES):
            del cached[path]
