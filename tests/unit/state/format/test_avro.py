"""Avro containers: every codec Paimon may have used, schemas resolved by name, and limits that hold."""

import json
import tracemalloc
import zlib
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.avro.columns import AvroColumns
from bucketline.state.format.avro.container import BLOCK_RECORDS, encode_records, iterate_records, open_container
from bucketline.state.format.avro.schema import AvroRecordFormat, Json, nullable

FORM = AvroRecordFormat(
    {
        "type": "record",
        "name": "record",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": "string"},
            nullable("time", {"type": "long", "logicalType": "timestamp-millis"}),
            nullable("counts", {"type": "array", "items": ["null", "long"]}),
        ],
    }
)
ROWS = [
    {"id": 1, "name": "é", "time": None, "counts": [1, None]},
    {"id": -(2**62), "name": "", "time": 2**60, "counts": None},
]


def _written(schema: Json, rows: list[dict[str, object]], codec: str = "null") -> bytes:
    out = BytesIO()
    fastavro.writer(out, schema, rows, codec=codec)
    return out.getvalue()


def _long(value: int) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, "long", value)
    return out.getvalue()


def _container(codec: bytes, block: bytes, count: int, schema: Json = FORM.schema) -> bytes:
    text = json.dumps(schema).encode()
    pairs = b"".join(_long(len(b)) + b for b in (b"avro.schema", text, b"avro.codec", codec))
    return b"Obj\x01" + _long(2) + pairs + _long(0) + bytes(16) + _long(count) + _long(len(block)) + block + bytes(16)


def _body() -> bytes:
    ((_, _, body),) = open_container(_written(FORM.schema, ROWS)).blocks()
    return body


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_containers_that_fastavro_wrote_are_read(codec: str) -> None:
    data = _written(FORM.schema, ROWS, codec)
    assert list(iterate_records(data, FORM)) == ROWS
    if codec != "null":
        ((_, _, packed),) = open_container(data).packed
        with pytest.raises(CorruptFileError, match="cannot be unpacked"):
            list(iterate_records(_container(codec.encode(), packed[:-4], 2), FORM))


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2"])
def test_fastavro_reads_the_containers_of_every_codec_it_knows(codec: str) -> None:
    rows = [{**row, "time": 0} for row in ROWS]
    data = encode_records(rows, FORM, codec)
    assert [r["id"] for r in fastavro.reader(BytesIO(data)) if isinstance(r, dict)] == [r["id"] for r in rows]
    assert list(iterate_records(data, FORM)) == rows


@pytest.mark.parametrize("codec", ["snappy", "zstandard"])
def test_containers_of_other_codecs_come_back(codec: str) -> None:
    data = encode_records(ROWS, FORM, codec)
    assert open_container(data).codec == codec
    assert list(iterate_records(data, FORM)) == ROWS


def test_snappy_blocks_are_read_and_their_checksum_is_checked() -> None:
    body = _body()
    packed = pa.Codec("snappy").compress(body, asbytes=True)
    good = _container(b"snappy", packed + zlib.crc32(body).to_bytes(4, "big"), 2)
    assert list(iterate_records(good, FORM)) == ROWS
    with pytest.raises(CorruptFileError, match="CRC-32"):
        list(iterate_records(_container(b"snappy", packed + bytes(4), 2), FORM))


def test_zstandard_frames_without_their_size_are_read() -> None:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(_body())
    assert list(iterate_records(_container(b"zstandard", out.getvalue().to_pybytes(), 2), FORM)) == ROWS


def test_a_small_block_takes_little_memory() -> None:
    data = encode_records(ROWS, FORM, "zstandard")
    tracemalloc.start()
    try:
        assert list(iterate_records(data, FORM)) == ROWS
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def test_our_containers_are_read_back_block_by_block() -> None:
    rows = [{"id": i, "name": str(i), "time": i, "counts": [i]} for i in range(2 * BLOCK_RECORDS + 1)]
    data = encode_records(rows, FORM)
    assert [count for _, count, _ in open_container(data).blocks()] == [BLOCK_RECORDS, BLOCK_RECORDS, 1]
    assert list(iterate_records(data, FORM)) == rows
    assert encode_records(rows, FORM) == data


def test_fastavro_reads_the_records_we_write() -> None:
    rows = [{**row, "time": 0} for row in ROWS]
    container = open_container(encode_records(rows, FORM))
    ((_, count, body),) = container.blocks()
    found = list(fastavro.reader(BytesIO(_container(b"null", body, count, json.loads(container.schema_text)))))
    assert [r["id"] for r in found if isinstance(r, dict)] == [r["id"] for r in rows]


def test_a_container_of_no_records_has_no_block() -> None:
    data = encode_records([], FORM)
    assert list(iterate_records(data, FORM)) == []
    assert not open_container(data).packed


def test_fields_resolve_by_name_whatever_the_order_record_name_and_extras() -> None:
    schema: Json = {
        "type": "record",
        "name": "Other",
        "namespace": "x.y",
        "fields": [
            {"name": "extra", "type": {"type": "map", "values": "bytes"}},
            {"name": "name", "type": "string"},
            {"name": "id", "type": "int"},
            {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED"]}},
        ],
    }
    (found,) = iterate_records(_written(schema, [{"extra": {}, "name": "n", "id": 3, "color": "RED"}]), FORM)
    assert (found["id"], found["name"], found.get("time")) == (3, "n", None)


def test_records_that_may_be_null_are_read_and_a_null_is_none() -> None:
    """Paimon up to 0.9 makes the record of a file nullable."""
    schema: Json = ["null", FORM.schema]
    assert list(iterate_records(_written(schema, ROWS), FORM)) == ROWS
    inner: Json = {"type": "record", "name": "stats", "fields": [{"name": "low", "type": "bytes"}]}
    outer: Json = {"type": "record", "name": "entry", "fields": [{"name": "stats", "type": inner}]}
    loose: Json = {"type": "record", "name": "entry", "fields": [{"name": "stats", "type": ["null", inner]}]}
    assert isinstance(outer, dict)
    form, entry = AvroRecordFormat(outer), {"stats": {"low": b"1"}}
    assert list(iterate_records(_written(loose, [entry]), form)) == [entry]
    with pytest.raises(CorruptFileError, match="a null where a record is required"):
        list(iterate_records(_written(loose, [entry, {"stats": None}]), form))
    columns = AvroColumns(BytesIO(_written(schema, ROWS)).read, len(_written(schema, ROWS)))
    assert [b.column("id").to_pylist() for b in columns.batches(["id"])] == [[row["id"] for row in ROWS]]
    holed = _container(b"null", _long(0), 1, schema)
    with pytest.raises(CorruptFileError, match="at offset"):
        list(iterate_records(holed, FORM))
    with pytest.raises(CorruptFileError, match="at offset"):
        list(AvroColumns(BytesIO(holed).read, len(holed)).batches(["id"]))


def test_records_that_are_defined_once_and_named_again_are_read() -> None:
    form = AvroRecordFormat(
        {
            "type": "record",
            "name": "record",
            "fields": [
                {"name": "a", "type": {"type": "record", "name": "A", "fields": [{"name": "v", "type": "bytes"}]}},
                {"name": "b", "type": {"type": "record", "name": "B", "fields": [{"name": "v", "type": "bytes"}]}},
            ],
        }
    )
    schema: Json = {
        "type": "record",
        "name": "R",
        "namespace": "n",
        "fields": [
            {"name": "a", "type": {"type": "record", "name": "Stats", "fields": [{"name": "v", "type": "bytes"}]}},
            {"name": "b", "type": "Stats"},
        ],
    }
    row: dict[str, object] = {"a": {"v": b"1"}, "b": {"v": b"2"}}
    assert list(iterate_records(_written(schema, [row]), form)) == [row]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([{"name": "id", "type": "long"}], "no field name"),
        ([{"name": "id", "type": "string"}, {"name": "name", "type": "string"}], "id has the Avro type 'string'"),
        ([{"name": "id", "type": ["null", "long"]}, {"name": "name", "type": "string"}], "id has the Avro type"),
        ([], "without fields"),
        ([{"name": "id", "type": "null"}], "is no Avro type"),
        ([{"name": "x", "type": {"type": "array", "items": "null"}}], "is no Avro type"),
        ([{"name": "x", "type": "record"}], "recursive"),
        ([{"name": "x", "type": {"type": "fixed", "name": "f", "size": 0}}], "is no Avro type"),
    ],
)
def test_schemas_that_cannot_be_ours_are_corrupt(fields: Json, reason: str) -> None:
    schema: Json = {"type": "record", "name": "record", "fields": fields}
    with pytest.raises(CorruptFileError, match=reason):
        list(iterate_records(_container(b"null", b"\0", 1, schema), FORM))


def test_a_block_must_hold_exactly_its_records() -> None:
    for count in (1, 3, 2**40):
        with pytest.raises(CorruptFileError, match="offset"):
            list(iterate_records(_container(b"null", _body(), count), FORM))


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(CorruptFileError, match="'lz77'"):
        list(iterate_records(_container(b"lz77", _body(), 2), FORM))
