"""Nested values with NOT NULL inside, at any depth, come back from Parquet whatever lies under nulls."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.store.datafile.parquet_sink import ParquetSink
from bucketline.state.types.arrow import arrow_schema, arrow_type
from bucketline.state.types.logical import DataField, DataType, TypeRoot
from tests.property.test_avro_encode import data_types, values
from tests.support.models.sweeps import draws


@st.composite
def columns(draw: st.DrawFn) -> tuple[DataField, list[object]]:
    kind = draw(data_types(3).filter(lambda t: not t.is_atomic))
    return DataField(0, "c", kind.as_nullable()), draw(st.lists(values(kind.as_nullable()), max_size=8))


@draws(200)
@given(columns(), st.integers(0, 3), st.lists(st.integers(0, 7), max_size=12))
def test_rows_come_back_however_they_were_picked(column, start: int, picked: list[int]) -> None:
    field, rows = column
    whole = pa.array(rows, arrow_type(field.type))
    for array in (whole, whole.slice(start), whole.take(pa.array([p for p in picked if p < len(rows)], pa.int64()))):
        if len(array) == 0:
            continue
        schema = arrow_schema([field])
        out = pa.BufferOutputStream()
        sink = ParquetSink(out, schema, codec="NONE", codec_level=None)
        sink.write(pa.Table.from_arrays([array], schema=schema))
        sink.close()
        found = pq.ParquetFile(pa.BufferReader(out.getvalue())).read()
        assert found["c"].type == array.type
        assert found["c"].equals(pa.chunked_array([array]))


@pytest.mark.parametrize("depth", [0, 1])
def test_a_null_in_what_is_not_null_is_refused(depth: int) -> None:
    number = DataType(TypeRoot.INT, nullable=False)
    kind = DataType(TypeRoot.ROW, fields=(DataField(1, "x", number),))
    value: object = {"x": None}
    if depth:
        kind, value = DataType(TypeRoot.ARRAY, element=kind), [None, value]
    loose = pa.struct([("x", pa.int32())]) if not depth else pa.list_(pa.struct([("x", pa.int32())]))
    array = pa.array([None, value], loose)
    schema = arrow_schema([DataField(0, "c", kind)])
    if depth:
        inner = as_strict(array.values, schema.types[0].value_type)
        strict = pa.Array.from_buffers(schema.types[0], 2, array.buffers()[:2], children=[inner])
    else:
        strict = as_strict(array, schema.types[0])
    sink = ParquetSink(pa.BufferOutputStream(), schema, codec="NONE", codec_level=None)
    with pytest.raises(SchemaMismatchError, match="column c: x is NOT NULL"):
        sink.write(pa.Table.from_arrays([strict], schema=schema))


def as_strict(array: pa.StructArray, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(array), array.buffers()[:1], children=[array.field(0)])
