"""A task as the function that Spark's Python workers call, without what a worker does again for each task.

Before each task a worker tells Python's import system to forget what it knows of the path, and up to Python 3.12 the
importer of an archive then reads the archive's table of contents again: for the two that PySpark itself is imported
from, a tenth of a second of each task, which is more than a task of a small batch works. An importer that is not cached
is not asked; the next import of something new makes another, from the table of contents it has read before.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import PurePath
from zipimport import zipimporter

import pyarrow as pa

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_OWN_ARCHIVES = ("pyspark*.zip", "py4j-*.zip")
"""What Spark ships with itself: it does not change while a worker lives, unlike what a job adds."""


def in_worker(task: Task) -> Task:
    """The task as a plain function, as Spark inspects the signature of what `mapInArrow` is given."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        forget_archives()
        return task(batches)

    return run


def forget_archives() -> None:
    """Takes the importers of Spark's own archives out of Python's cache of importers."""
    cached = sys.path_importer_cache
    for path in [p for p, importer in cached.items() if isinstance(importer, zipimporter)]:
        if any(PurePath(path).match(pattern) for pattern in _OWN_ARCHIVES):
            del cached[path]
