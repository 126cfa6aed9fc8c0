"""The tail of ORC files of every compression, whole and damaged."""

from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.orc_tail import MAGIC, read_tail, writer_zone
from tests.support.peers.golden import GOLDEN

SHANGHAI = next((GOLDEN / "java.db" / "orc_shanghai_true").rglob("*.orc")).read_bytes()


def _zones(data: bytes) -> list[str]:
    def read_at(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    tail = read_tail(read_at, len(data))
    return [writer_zone(read_at, tail, stripe) for stripe in tail.stripes]


@pytest.mark.parametrize("compression", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
def test_stripes_and_zone_are_found_under_every_compression(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "x.orc"
    columns = {f"a_column_with_a_long_name_{i}": pa.array(range(5000)) for i in range(60)}
    orc.write_table(pa.table(columns), path, compression=compression)
    data = path.read_bytes()
    assert set(_zones(data)) == {"GMT"}
    tail = read_tail(lambda offset, length: data[offset : offset + length], len(data))
    assert len(tail.stripes) == orc.ORCFile(path).nstripes
    assert tail.stripes[0].offset == len(MAGIC)


def test_a_packed_footer_ends_where_it_says_whatever_memory_it_is_unpacked_into() -> None:
    stripe = bytes([0x08, 3, 0x20, 0])
    footer = bytes([0x1A, len(stripe)]) + stripe
    footer += bytes([0x22, 120]) + b"x" * 120
    packed = pa.Codec("lz4_raw").compress(footer, asbytes=True)
    packed = (len(packed) << 1).to_bytes(3, "little") + packed
    block_bytes = bytes([0x18, 0x80, 0x20])
    postscript = bytes([0x08, len(packed), 0x10, 4]) + block_bytes + bytes([0x82, 0xF4, 0x03, 3]) + MAGIC
    data = MAGIC + packed + postscript + bytes([len(postscript)])
    for _ in range(5):
        used = [b"\x7f" * 4096 for _ in range(20)]
        del used[::2]
        tail = read_tail(lambda offset, length: data[offset : offset + length], len(data))
        assert [s.offset for s in tail.stripes] == [3]


def test_the_zone_of_javas_writer_is_found() -> None:
    assert _zones(SHANGHAI) == ["Asia/Shanghai"]


@given(place=st.integers(0, len(SHANGHAI) - 1), change=st.integers(1, 255))
def test_a_changed_byte_is_found_out_or_changes_nothing_but_names(place: int, change: int) -> None:
    broken = bytearray(SHANGHAI)
    broken[place] ^= change
    try:
        assert len(_zones(bytes(broken))) <= len(SHANGHAI)
    except CorruptFileError as e:
        assert "offset" in e.fields


@given(kept=st.integers(0, len(SHANGHAI) - 1))
def test_a_cut_file_has_no_tail(kept: int) -> None:
    with pytest.raises(CorruptFileError):
        _zones(SHANGHAI[:kept])
