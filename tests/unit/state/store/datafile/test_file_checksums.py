"""Checksums of ORC and Avro files: where they are put, other readers pass over them, and no damage passes by them."""

import io
import random
from pathlib import Path

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pytest

from bucketline.conf.table.table_settings import DataFileSettings
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.avro.codec import pack_block, unpack_block
from bucketline.state.format.json_files.schema_json import TableSchema, decode_schema, encode_schema
from bucketline.state.format.near_names import check_names
from bucketline.state.format.orc_checksum import TAIL_BYTES, BlockChecksums, read_checksums
from bucketline.state.store.datafile.checked_file import CheckedSource, checked_source
from bucketline.state.store.datafile.checked_sink import CheckedSink, block_bytes_for
from bucketline.state.store.datafile.orc_rows import OrcRows
from bucketline.state.store.datafile.orc_sink import OrcSink
from bucketline.state.store.datafile.stored_names import check_columns
from bucketline.state.store.table.table import create_table
from bucketline.state.types.logical import DataField, parse_type_text
from tests.support.tables.flips import Flip

ORC_CODECS = ("uncompressed", "snappy", "zlib", "lz4", "zstd")


def orc_file(path: Path, block_bytes: int, codec: str = "zstd", row_count: int = 30_000, columns: int = 3) -> pa.Table:
    draw = random.Random(3)
    data = pa.table({f"c{i}": [draw.random() for _ in range(row_count)] for i in range(columns)})
    with pa.OSFile(str(path), "wb") as out:
        sink = CheckedSink(out, block_bytes)
        writer = orc.ORCWriter(pa.PythonFile(sink, mode="w"), compression=codec, stripe_size=1 << 16)
        for start in range(0, row_count, 5000):
            writer.write(data.slice(start, 5000))
        writer.close()
        sink.finish()
    return data


@pytest.mark.parametrize("block_bytes", [1 << 10, 1 << 16, 1 << 20])
@pytest.mark.parametrize("codec", ORC_CODECS)
def test_an_orc_file_with_checksums_is_an_orc_file_to_everyone(tmp_path: Path, codec: str, block_bytes: int) -> None:
    path = tmp_path / "f.orc"
    data = orc_file(path, block_bytes, codec)
    assert orc.ORCFile(str(path)).read().equals(data)
    with pa.OSFile(str(path), "rb") as source:
        checked = checked_source(source)
        assert checked is not None
        file = orc.ORCFile(pa.PythonFile(checked, mode="r"))
        assert file.read(columns=["c1"]).equals(data.select(["c1"])) and file.read().equals(data)
        checked.seek(0)
        assert checked.read() == path.read_bytes()


class Writes(io.BytesIO):
    """Remembers how large the writes were."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def write(self, data: "bytes | memoryview") -> int:  # type: ignore[override]
        self.sizes.append(len(data))
        return super().write(data)


def test_a_stripe_that_is_written_on_closing_passes_through_piece_by_piece() -> None:
    data = pa.table({"c": [random.Random(4).random() for _ in range(400_000)]})
    out = Writes()
    sink = OrcSink(
        pa.PythonFile(out, mode="w"),
        data.schema,
        codec="uncompressed",
        stripe_bytes=64 << 20,
        target_bytes=64 << 20,
        is_legacy_ltz=False,
    )
    sink.write(data)
    sink.close()
    assert sum(out.sizes) > 3 << 20
    assert max(out.sizes) < 1 << 20


def test_each_byte_of_an_orc_file_is_under_a_checksum_or_is_one(tmp_path: Path) -> None:
    path = tmp_path / "f.orc"
    data, draw = orc_file(path, 1 << 12, row_count=300), random.Random(1)
    size = path.stat().st_size
    told = 0
    for offset in range(0, size, 3):
        flip = Flip(path, offset, draw.randrange(8))
        flip.do()
        with pa.OSFile(str(path), "rb") as source:
            try:
                checked = checked_source(source)
                if checked is not None:
                    checked.read()
                # What is damaged is the mark of the checksums itself.
                assert checked is None and orc.ORCFile(source).read().equals(data)
            except CorruptFileError:
                told += 1
        flip.do()
    assert told >= size // 3 - len(b"BKLT-CRC")


def test_checksums_longer_than_what_is_read_of_a_file_at_first_are_found(tmp_path: Path) -> None:
    path = tmp_path / "f.orc"
    orc_file(path, 64)
    raw = path.read_bytes()
    wanted = read_checksums(raw[-TAIL_BYTES:], len(raw))
    assert isinstance(wanted, int) and wanted > TAIL_BYTES
    found = read_checksums(raw[-wanted:], len(raw))
    assert isinstance(found, BlockChecksums) and found.block_bytes == 64


def test_checksums_that_fit_into_no_footer_are_left_out(tmp_path: Path) -> None:
    """A part of a footer may not be longer than the file's compression blocks."""
    path = tmp_path / "f.orc"
    data = orc_file(path, 16)
    assert orc.ORCFile(str(path)).read().equals(data)
    with pa.OSFile(str(path), "rb") as source:
        assert checked_source(source) is None


def test_blocks_grow_with_the_files_so_that_checksums_fit() -> None:
    for target in (1 << 20, 128 << 20, 256 << 20, 4 << 30):
        assert 4 * 2 * target / block_bytes_for(target) < 60_000
    assert block_bytes_for(256 << 20) == 64 << 10


@pytest.mark.parametrize("codec", ["zstandard", "deflate", "snappy", "bzip2"])
def test_no_flipped_bit_of_a_packed_block_unpacks_to_something_else(codec: str) -> None:
    draw = random.Random(2)
    body = bytes(draw.choices(range(60, 90), k=2000))
    packed = pack_block(codec, body)
    assert unpack_block(codec, packed, 0) == body
    told = 0
    for place in range(len(packed)):
        changed = bytearray(packed)
        changed[place] ^= 1 << draw.randrange(8)
        try:
            assert unpack_block(codec, bytes(changed), 0) == body, place
        except CorruptFileError:
            told += 1
    assert told > 0.9 * len(packed)


@pytest.mark.parametrize("codec", ["deflate", "none"])
def test_other_readers_of_avro_pass_over_the_checksums(tmp_path: Path, codec: str) -> None:
    table = create_table(str(tmp_path / "t"), "k INT", options={"file.format": "avro", "file.compression": codec})
    table.write(pa.table({"k": pa.array(range(40_000), pa.int32())}))
    (path,) = (tmp_path / "t").rglob("*.avro")
    records = list(fastavro.reader(io.BytesIO(path.read_bytes())))
    assert [r["k"] for r in records] == list(range(40_000))


@pytest.mark.parametrize("name", ["indexManifestx", "index", "INDEXMANIFEST", "operation2"])
def test_members_of_other_writers_are_passed_over(name: str) -> None:
    check_names(["id", name], ["id", "indexManifest", "operation"], "member")


def test_a_known_name_with_one_bit_flipped_is_refused_unless_it_is_there_itself() -> None:
    with pytest.raises(CorruptFileError, match="'indexManifest' with one bit flipped"):
        check_names(["id", "indexManigest"], ["id", "indexManifest"], "member")
    check_names(["id", "ie"], ["id", "ie"], "member")
    check_names(["id", "ie"], ["id"], "member")


def options_of(key: str) -> dict[str, str]:
    schema = TableSchema(0, tuple(fields("a", "b")), 1, (), (), {key: "x"})
    return dict(decode_schema(encode_schema(schema)).options)


@pytest.mark.parametrize(
    "key",
    ["Owner", "Comment", "Path", "Type", "Bucket", "Branch", "provides", "field3", "field3.name", "Fields", "Fields.a"],
)
def test_options_that_only_look_like_known_ones_are_passed_over(key: str) -> None:
    assert options_of(key) == {key: "x"}


@pytest.mark.parametrize(
    "key", ["bucjet", "typd", "merge-engi~e", "mErge-engine", "Merge-engine", "fiells.a.aggregate-function"]
)
def test_an_option_with_one_bit_flipped_is_refused(key: str) -> None:
    with pytest.raises(CorruptFileError, match="one bit flipped"):
        options_of(key)


def fields(*names: str) -> list[DataField]:
    return [DataField(i, name, parse_type_text("INT")) for i, name in enumerate(names)]


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (["a", "x", "c"], {"a": 0, "x": 1, "c": 2}),
        (["a", "b", "c"], {"a": 0, "b": 9, "c": 2}),
        (["a", "B", "c"], {}),
    ],
)
def test_one_column_that_does_not_fit_its_schema_is_refused(names: list[str], ids: dict[str, int]) -> None:
    with pytest.raises(CorruptFileError, match="column b"):
        check_columns(names, ids, fields("a", "b", "c"))


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (["a", "b", "c"], {"a": 0, "b": 1, "c": 2}),
        (["a", "c"], {"a": 0, "c": 2}),
        (["a", "b", "c"], {"a": 1, "b": 2, "c": 3}),
        (["_col0", "_col1", "_col2"], {}),
        (["a", "what_hive_called_it", "c"], {}),
        (["a", "xx", "c"], {}),
        (["a", "c"], {}),
        (["_SEQUENCE_NUMBER", "a", "b", "c"], {}),
    ],
)
def test_files_that_were_made_elsewhere_may_lack_columns(names: list[str], ids: dict[str, int]) -> None:
    check_columns(names, ids, fields("a", "b", "c"))


class Requests(io.BytesIO):
    """Remembers how many bytes were asked for at once."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.sizes: list[int] = []

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self.sizes.append(len(found))
        return found


@pytest.mark.parametrize("columns", [None, ["c1"]])
def test_a_checked_file_of_many_columns_is_fetched_once_and_with_few_requests(
    tmp_path: Path, columns: list[str] | None
) -> None:
    path = tmp_path / "f.orc"
    with pa.OSFile(str(path), "wb") as out:
        data = pa.table({f"c{i}": np.random.default_rng(i).random(40_000) for i in range(24)})
        sink = OrcSink(
            out, data.schema, codec="zstd", stripe_bytes=64 << 20, target_bytes=64 << 20, is_legacy_ltz=False
        )
        sink.write(data)
        sink.close()
    plain, checked = Requests(path.read_bytes()), Requests(path.read_bytes())
    orc.ORCFile(pa.PythonFile(plain, mode="r")).read(columns=columns)
    rows = OrcRows(pa.PythonFile(checked, mode="r"), DataFileSettings({}))
    found = pa.Table.from_batches(list(rows.batches(columns or data.column_names, 1 << 20, 64 << 20)))
    assert found.equals(data.select(columns or data.column_names))
    assert len(checked.sizes) <= len(plain.sizes) + 1
    assert sum(checked.sizes) <= sum(plain.sizes) + (1 << 20)


def test_a_checked_source_forgets_what_was_read_and_holds_no_more_than_its_budget(tmp_path: Path) -> None:
    path = tmp_path / "f.orc"
    orc_file(path, 1 << 10, row_count=300_000)
    raw, before = path.read_bytes(), pa.total_allocated_bytes()
    with pa.OSFile(str(path), "rb") as source:
        size = source.size()
        tail = source.read_at(TAIL_BYTES * 4, size - TAIL_BYTES * 4)
        sums = read_checksums(tail, size)
        assert isinstance(sums, BlockChecksums) and size > 4 << 20
        checked = CheckedSource(source, size, sums, tail, most_bytes=1 << 20)
        # A little of each piece, then the rest: none is ever used up before the end.
        for offset in (*range(0, size, 128 << 10), *range(0, size, 100_000)):
            checked.seek(offset)
            assert bytes(checked.read(1000)) == raw[offset : offset + 1000]
            assert pa.total_allocated_bytes() - before <= 1 << 20
        for offset in range(0, size, 100_000):
            checked.seek(offset)
            checked.read(100_000)
        assert pa.total_allocated_bytes() - before < 1 << 20
