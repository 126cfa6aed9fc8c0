"""Decimals keep their value or are refused, however many zeros the new scale adds."""

from decimal import Decimal
from random import Random

import pyarrow as pa
import pytest

from bucketline.state.errors import SchemaMismatchError
from bucketline.state.types.decimal_cast import cast_decimal
from bucketline.state.types.fit import fit_array
from bucketline.state.types.logical import parse_type


def holds(number: Decimal, target: pa.DataType) -> bool:
    scaled = number.scaleb(target.scale)
    return scaled == scaled.to_integral_value() and abs(scaled) < 10**target.precision


def test_what_does_not_fit_is_refused_and_the_rest_is_the_same_number() -> None:
    random = Random(11)
    fitted = refused = 0
    for _ in range(500):
        digits, behind = random.randint(1, 38), random.randint(0, 38)
        number = Decimal(random.randrange(10**digits)).scaleb(-min(behind, digits))
        precision = random.randint(1, 38)
        target = pa.decimal128(precision, random.randint(0, precision))
        for values in (pa.array([number], pa.decimal128(38, min(behind, digits))), pa.array([format(number, "f")])):
            try:
                found = cast_decimal(values, target)
            except pa.ArrowInvalid:
                # Texts may be refused for zeros at their end, too.
                refused += not holds(number, target)
                assert not holds(number, target) or pa.types.is_string(values.type)
                continue
            fitted += 1
            assert holds(number, target) and found.to_pylist() == [number]
    assert fitted > 50 and refused > 50


def test_rows_that_are_written_are_judged_so() -> None:
    numbers = pa.array([Decimal("12345678901234567890.5")], pa.decimal128(38, 1))
    with pytest.raises(SchemaMismatchError, match="does not fit"):
        fit_array(numbers, parse_type("DECIMAL(38, 21)"), pa.decimal128(38, 21), "v")
    assert (
        fit_array(numbers, parse_type("DECIMAL(38, 18)"), pa.decimal128(38, 18), "v")[0].as_py() == numbers[0].as_py()
    )
