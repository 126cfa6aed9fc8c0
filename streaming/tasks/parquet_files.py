"""Parquet files as a source of tasks: a value that says which task reads which parts of which files.

Rows keep the order of Spark's file source: its parts are read in its order, so the number of a task and the position in
it give the order of rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from bucketline.streaming.decode.decoder import Decoder

FEWEST_BYTES = 4 << 20
"""From this number of bytes on, one more task is worth its start."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """The row groups of a local file whose middle lies between two positions: `start`, and `end`, which is not
    included. `file_size` is that of the whole file when the batch was planned."""

    path: str
    start: int
    end: int
    file_size: int


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """A source: the rows of Parquet files, share by share of the tasks.

    `declared` are the columns that the job reads the files with, and `columns` those that tasks hand over. For each
    of these `declared_of` says which declared column it is; one that it does not name is null. `decode` and
    `reject_limit` are as in `Frame`.
    """

    shares: tuple[tuple[FilePart, ...], ...]
    declared: pa.Schema
    columns: pa.Schema
    declared_of: Mapping[str, str]
    ignores_case: bool = True
    accepts_old_dates: bool = True
    decode: Decoder | None = None
    reject_limit: int | None = 1

    @property
    def is_alone(self) -> bool:
        """Whether one task reads all parts."""
        return len(self.shares) == 1


def shares_of(parts: Sequence[Sequence[FilePart]]) -> tuple[tuple[FilePart, ...], ...]:
    """The parts of Spark's tasks, joined into one share if they have few bytes in all: one task that reads and writes
    needs no second stage.
    """
    if sum(part.end - part.start for part in chain(*parts)) <= FEWEST_BYTES:
        return (tuple(chain(*parts)),)
    return tuple(map(tuple, parts))
