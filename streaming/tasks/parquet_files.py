"""Parquet files as the source of a batch: values that say which task reads which parts of which files.

Rows keep the order of Spark's file source. Tasks read the parts in Spark's order, so the number of a task and the
position of a row in the task give the order of rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa

from bucketline.streaming.decode.decoder import Decoder

FEWEST_BYTES = 4 << 20
"""From this number of bytes on, it is worth to start one more task."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """A part of a local file: the row groups whose middle lies between the positions `start` (included) and `end` (not
    included). `file_size` is the size of the whole file, in bytes, when the batch was planned.
    """

    path: str
    start: int
    end: int
    file_size: int


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """A source of rows: Parquet files.

    - `shares` has for each task the list of parts of files that the task reads.
    - `declared` are the columns that the job reads from the files, and `columns` the columns that tasks return.
    - `declared_of` maps returned columns to declared columns; a column that is not in `declared_of` is null.
    - `decode` turns records into rows; it is None if the records are rows already.
    - Each task reports at most about `reject_limit` of its bad records. If the limit is None, the first bad row raises
      SchemaMismatchError.
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
        """True if one task reads all parts."""
        return len(self.shares) == 1


def shares_of(parts: Sequence[Sequence[FilePart]]) -> tuple[tuple[FilePart, ...], ...]:
    """Takes the parts of files that each of Spark's own tasks would read. Returns the parts that each task of the batch
    reads.

    The result is equal to `parts`, unless all parts together have few bytes. Then one task gets all parts: a single
    task both reads and writes, so no second stage of tasks is needed.
    """
    if sum(part.end - part.start for part in chain(*parts)) <= FEWEST_BYTES:
        return (tuple(chain(*parts)),)
    return tuple(map(tuple, parts))
