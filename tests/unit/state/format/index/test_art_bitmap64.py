"""64-bit bitmaps in Java's own form: its bytes are read, ours are canonical, and damage is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.index.art_bitmap64 import decode_bitmap64, encode_bitmap64

# What Paimon Java 1.4.2 made of RoaringBitmap64.bitmapOf(1, 2, 3, 70000, -1, 1L << 40).
_JAVA = bytes.fromhex(
    "010400000000000000000200000000ff00000200010000000100000200020000000001000400000000000000000000000000"
    "0000000004000000000000000001010000000000000004000000000001000000030000000000000004000000ffffffffffff"
    "020000000000000001000000fe040000000102030000000100020003000102010000007011010201000000ffff0102010000"
    "00000004000000000000000000000003000000"
)
_VALUES = {1, 2, 3, 70000, 1 << 40, (1 << 64) - 1}


def test_what_java_wrote_is_read() -> None:
    assert decode_bitmap64(_JAVA) == BitMap64(_VALUES)
    assert decode_bitmap64(b"\x00") == BitMap64() and encode_bitmap64(BitMap64()) == b"\x00"


def test_containers_are_numbered_by_key_whatever_java_numbered_them_by() -> None:
    found = encode_bitmap64(decode_bitmap64(_JAVA))
    assert found != _JAVA and len(found) == len(_JAVA)
    assert found == encode_bitmap64(BitMap64(sorted(_VALUES, reverse=True)))
    # Java numbers by arrival, and these came in order.
    assert encode_bitmap64(BitMap64([7])).hex() == (
        "01010000000000000004000000000000000000000000000000000001000000fe0100000001020100000007000100000000000000"
        "0000000000000000"
    )


@given(
    st.sets(
        st.builds(
            lambda top, middle, low: top << 56 | middle << 16 | low,
            st.integers(0, 255),
            st.integers(0, 2**40 - 1) | st.integers(0, 300),
            st.integers(0, 65535),
        ),
        max_size=60,
    ),
    st.lists(st.tuples(st.integers(0, 2**63), st.integers(1, 200_000)), max_size=2),
)
def test_values_come_back(values: set[int], ranges: list[tuple[int, int]]) -> None:
    bitmap = BitMap64(values)
    for start, length in ranges:
        bitmap.add_range(start, start + length)
    assert decode_bitmap64(encode_bitmap64(bitmap)) == bitmap


@pytest.mark.parametrize("count", [1, 2, 4, 5, 16, 17, 48, 49, 256, 257, 3000])
@pytest.mark.parametrize("shift", [16, 24, 48, 52])
def test_every_width_of_node_comes_back(count: int, shift: int) -> None:
    bitmap = BitMap64((i << shift) % (1 << 64) | i for i in range(0, 3 * count, 3))
    assert decode_bitmap64(encode_bitmap64(bitmap)) == bitmap


def test_runs_bits_and_lists_come_back_and_small_bits_are_a_list() -> None:
    bitmap = BitMap64([*range(10), *range(1 << 17, 1 << 18, 7), *range(1 << 33, (1 << 33) + 70_000)])
    assert decode_bitmap64(encode_bitmap64(bitmap)) == bitmap
    # Java keeps bits where values were taken out of them.
    kept = {5, 8, 4000}
    bits = sum(1 << v for v in kept).to_bytes(8192, "little")
    data = encode_bitmap64(BitMap64(kept))
    at = data.index(b"\x01\x02\x03\x00\x00\x00") + 1
    assert decode_bitmap64(data[:at] + b"\x01\x03\x00\x00\x00" + bits + data[at + 5 + 6 :]) == BitMap64(kept)
    with pytest.raises(CorruptFileError, match="3 bits are set, not 4"):
        decode_bitmap64(data[:at] + b"\x01\x04\x00\x00\x00" + bits + data[at + 5 + 6 :])


def test_bytes_cut_short_or_followed_by_others_are_refused() -> None:
    for data in (_JAVA, encode_bitmap64(BitMap64([*range(0, 1 << 24, 1 << 12), *range(1 << 40, (1 << 40) + 9000, 2)]))):
        for size in [*range(min(len(data), 400)), len(data) - 1]:
            if data[:size] != b"\x00":
                with pytest.raises(CorruptFileError, match="no 64-bit Roaring bitmap as Java stores it: at offset"):
                    decode_bitmap64(data[:size])
        with pytest.raises(CorruptFileError, match="17 bytes follow instead of 16"):
            decode_bitmap64(data + b"\x00")


@given(st.integers(0, len(_JAVA) - 1), st.integers(0, 255))
def test_a_changed_byte_is_told_or_gives_a_bitmap(at: int, value: int) -> None:
    try:
        found = decode_bitmap64(_JAVA[:at] + bytes([value]) + _JAVA[at + 1 :])
    except CorruptFileError as e:
        assert "no 64-bit Roaring bitmap" in e.message
    else:
        assert encode_bitmap64(found)


@pytest.mark.parametrize(
    ("at", "value", "reason"),
    [
        (1, 5, "the header says 5 keys, but the tree has 4"),
        (9, 5, "no valid node: kind 5"),
        (10, 5, "no valid node: kind 0, 5 children"),
        (12, 6, "a path of 6 bytes"),
        (0, 2, "the first byte is 02"),
    ],
)
def test_damage_is_named(at: int, value: int, reason: str) -> None:
    with pytest.raises(CorruptFileError, match=reason):
        decode_bitmap64(_JAVA[:at] + bytes([value]) + _JAVA[at + 1 :])
