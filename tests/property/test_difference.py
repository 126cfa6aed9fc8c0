"""Two sorted sides are compared key by key as two dictionaries are, however they are cut into batches."""

import math
from collections.abc import Iterator

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.lsm.merge.difference import difference
from bucketline.state.types.arrow import VALUE_KIND
from bucketline.state.types.row_kind import RowKind

VALUES = st.tuples(
    st.none() | st.sampled_from([0.0, -0.0, 1.5, math.nan]), st.none() | st.lists(st.none() | st.integers(0, 1))
)
SIDES = st.dictionaries(st.integers(0, 12), VALUES)
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int32(), nullable=False),
        ("d", pa.float64()),
        ("l", pa.list_(pa.int32())),
        pa.field(VALUE_KIND, pa.int8(), nullable=False),
    ]
)


def _batches(side: dict[int, tuple[object, object]], rows: int) -> Iterator[pa.RecordBatch]:
    rows_of_side = [{"k": k, "d": number, "l": listed, VALUE_KIND: 0} for k, (number, listed) in sorted(side.items())]
    yield from pa.Table.from_pylist(rows_of_side, schema=SCHEMA).to_batches(max_chunksize=rows)


@given(SIDES, SIDES, st.integers(1, 4), st.integers(1, 20))
def test_the_difference_is_that_of_two_dictionaries(
    before: dict[int, tuple[object, object]], after: dict[int, tuple[object, object]], cut: int, batch_rows: int
) -> None:
    expected = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if new is None:
            expected.append((key, repr(old), int(RowKind.DELETE)))
        elif old is None:
            expected.append((key, repr(new), int(RowKind.INSERT)))
        elif repr(old) != repr(new):
            expected.append((key, repr(new), int(RowKind.UPDATE_AFTER)))
    found = list(difference(_batches(before, cut), _batches(after, 2), ["k"], batch_rows, 1 << 20))
    rows = [row for batch in found for row in batch.to_pylist()]
    assert [(r["k"], repr((r["d"], r["l"])), r[VALUE_KIND]) for r in rows] == expected
    assert all(batch.schema == SCHEMA and 0 < batch.num_rows <= batch_rows for batch in found)
