"""A function that long work on a bucket calls again and again, so that the work can be ended from outside."""

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

Watch = Callable[[], None]
"""A function that is called before each record batch. It ends the work by raising an exception."""


def unwatched() -> None:
    """The default function for a `Watch` (a function that is called again and again, and ends long work by an
    exception). This function does nothing, so the work is never ended.
    """


def watched(batches: Iterable[pa.RecordBatch], watch: Watch) -> Iterator[pa.RecordBatch]:
    """Yields the batches, and calls `watch` before each batch."""
    for batch in batches:
        watch()
        yield batch
