"""Sort keys compare as values do; curves keep what is near in space near in order."""

import itertools
from datetime import date, datetime, time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from bucketline.state.types.curves import OrderStrategy, curve_words, hilbert_transposed, interleaved, sort_key

VALUES: dict[str, pa.Array] = {
    "int8": pa.array([-128, -1, 0, 1, 127], pa.int8()),
    "int64": pa.array([-(2**62), -5, 0, 5, 2**63 - 1], pa.int64()),
    "double": pa.array([float("-inf"), -1e300, -1.5, 0.0, 1e-300, 2.5, float("inf"), float("nan")]),
    "float": pa.array([-3.5, -0.25, 0.0, 0.25, 3.5], pa.float32()),
    "decimal": pa.array(
        [Decimal("-99999999.99"), Decimal("-0.01"), Decimal("0.00"), Decimal("12.50")], pa.decimal128(10, 2)
    ),
    "large decimal": pa.array([Decimal(-(10**30)), Decimal(-1), Decimal(0), Decimal(2**70)], pa.decimal128(38, 0)),
    "string": pa.array(["", "a", "ab", "b", "é", "😀"]),
    "binary": pa.array([b"", b"\x00", b"\x00\x01", b"\x7f", b"\xff"]),
    "boolean": pa.array([False, True]),
    "date": pa.array([date(1900, 1, 1), date(1970, 1, 1), date(2026, 11, 22)]),
    "time": pa.array([time(0, 0), time(0, 0, 1), time(23, 59)], pa.time32("ms")),
    "timestamp": pa.array([datetime(1900, 1, 1), datetime(1970, 1, 1), datetime(2026, 11, 22)], pa.timestamp("us")),
}


def order(key: pa.Table) -> list[int]:
    return list(
        key.append_column("at", [list(range(len(key)))])
        .sort_by([(c, "ascending") for c in key.column_names])["at"]
        .to_pylist()
    )


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("strategy", OrderStrategy)
def test_a_key_of_one_column_compares_as_its_values_and_nulls_have_a_place(kind: str, strategy: OrderStrategy) -> None:
    """Texts differ within their first eight bytes here: no more of them is on a curve."""
    given = VALUES[kind]
    draw = np.random.default_rng(7)
    shuffled = draw.permutation(len(given))
    column = pa.concat_arrays([given.take(pa.array(shuffled)), pa.nulls(1, given.type)])
    found = order(sort_key([column], strategy))
    null = found.index(len(given))
    assert null == (len(given) if strategy is OrderStrategy.HILBERT else 0) or kind in ("string", "binary", "boolean")
    rest = [int(shuffled[i]) for i in found if i != len(given)]
    if kind == "binary" and strategy is not OrderStrategy.ORDER:
        # A byte of zero is as good as none.
        assert sorted(rest[:2]) == [0, 1]
        rest = sorted(rest[:2]) + rest[2:]
    assert rest == list(range(len(given)))


def test_rows_are_ordered_by_one_column_after_the_other() -> None:
    one, two = pa.array([2, 1, 2, 1, None]), pa.array(["b", "longer than eight 2", "a", "longer than eight 1", "z"])
    assert order(sort_key([one, two], OrderStrategy.ORDER)) == [4, 3, 1, 2, 0]
    sliced = pa.array([9, 9, *one.to_pylist()])[2:], pa.concat_arrays([pa.array(["x"]), two])[1:]
    assert order(sort_key(sliced, OrderStrategy.ORDER)) == [4, 3, 1, 2, 0]
    assert order(sort_key([pa.array(["b", "a"]).dictionary_encode()], OrderStrategy.ORDER)) == [1, 0]


def test_a_z_value_has_the_bits_of_all_columns_in_turns() -> None:
    words = [np.array([0b10 << 62], np.uint64), np.array([0b01 << 62], np.uint64)]
    assert interleaved(words)[0].tobytes() == bytes([0b10010000, *[0] * 15])
    draw = np.random.default_rng(3).integers(0, 2**63, (50, 3)).astype(np.uint64)
    found = interleaved([draw[:, i] for i in range(3)])
    for row, value in zip(draw.tolist(), found, strict=True):
        bits = "".join("".join(f"{w:064b}"[i] for w in row) for i in range(64))
        assert int.from_bytes(value.tobytes(), "big") == int(bits, 2)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_neighbours_on_a_hilbert_curve_are_neighbours_in_space(dimensions: int) -> None:
    side_bits = 3
    cells = np.array(list(itertools.product(range(1 << side_bits), repeat=dimensions)), np.uint64)
    words = [cells[:, i] << np.uint64(64 - side_bits) for i in range(dimensions)]
    curve = [int.from_bytes(v.tobytes(), "big") for v in interleaved(hilbert_transposed(words))]
    assert len(set(curve)) == len(cells)
    walk = cells[np.argsort(np.array(curve, object))].astype(np.int64)
    assert (np.abs(np.diff(walk, axis=0)).sum(axis=1) == 1).all()


def test_only_the_first_eight_bytes_of_a_text_are_on_a_curve() -> None:
    words = curve_words(pa.array(["12345678", "123456789", "1234567"]))
    assert words[0] == words[1] > words[2]
