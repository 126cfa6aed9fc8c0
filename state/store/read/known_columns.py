"""System columns that a merge does not read from files, because manifests say what is in them.

In files without deletes the row kinds make no difference to the rows that are read. Where runs were written one after
the other, the sequence numbers of their files say which of two rows with one key is newer.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

import pyarrow as pa

from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.lsm.merge.fold import Fold, Selection
from bucketline.state.lsm.tree.run import SortedRun
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND
from bucketline.state.types.row_kind import RowKind


def known_columns(runs: Sequence[SortedRun], fold: Fold) -> frozenset[str]:
    """The system columns that a merge of these runs need not read, if it gives out other columns only."""
    if not isinstance(fold, Selection):
        return frozenset()
    found = set()
    if not any(f.may_hold_deletes for run in runs for f in run.files):
        found.add(VALUE_KIND)
    ranges = sorted(
        (min(f.min_sequence_number for f in run.files), max(f.max_sequence_number for f in run.files)) for run in runs
    )
    if all(before[1] < after[0] for before, after in pairwise(ranges)):
        found.add(SEQUENCE)
    return frozenset(found)


def with_known(
    batches: Iterable[pa.RecordBatch], file: DataFileMeta, out: pa.Schema, known: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """The batches of a file with all columns of `out`: in those that are known, every row has the same value."""
    values = {VALUE_KIND: int(RowKind.INSERT), SEQUENCE: file.min_sequence_number}
    constants = {name: pa.scalar(values[name], out.field(name).type) for name in known}
    for batch in batches:
        columns = [
            pa.repeat(constants[name], batch.num_rows) if name in constants else batch.column(name)
            for name in out.names
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=out)
