"""Which values a filter wants of a column: every row that passes has one of them."""

import random
from datetime import date, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketline.state.store.read.wanted_values import wanted_values

SCHEMA = pa.schema(
    [("k", pa.int64()), ("i", pa.int32()), ("s", pa.string()), ("d", pa.date32()), ("t", pa.timestamp("us")),
     ("x", pa.float64())]
)  # fmt: skip
KEY, NUMBER, TEXT = pc.field("k"), pc.field("i"), pc.field("s")


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (KEY == 5, {"k": [5]}),
        (NUMBER == 5, {"i": [5]}),
        (KEY.isin(pa.array([5, 7])), {"k": [5, 7]}),
        (NUMBER.isin(pa.array([5, 7])), {"i": [5, 7]}),
        ((KEY == 5) | (KEY == 7), {"k": [5, 7]}),
        ((KEY == 5) & (TEXT == "a"), {"k": [5], "s": ["a"]}),
        (KEY.isin(pa.array([1, 5, 7])) & (KEY > 1), {"k": [5, 7]}),
        ((KEY == 5) & (KEY == 7), {"k": []}),
        (TEXT.isin(["b", "a"]), {"s": ["a", "b"]}),
        (pc.field("d") == date(2024, 2, 29), {"d": [date(2024, 2, 29)]}),
        (pc.field("t") == datetime(2024, 2, 29), {"t": [datetime(2024, 2, 29)]}),
    ],
    ids=str,
)
def test_values_of_equality_and_in_are_found(condition: pc.Expression, wanted: dict[str, list[object]]) -> None:
    found = wanted_values(SCHEMA, condition, SCHEMA.names)
    assert {name: values.to_pylist() for name, values in found.items()} == wanted
    assert all(values.type == SCHEMA.field(name).type for name, values in found.items())


@pytest.mark.parametrize(
    "condition",
    [
        (KEY == 5) | (TEXT == "a"),
        ~(KEY == 5),
        KEY > 5,
        KEY.is_null(),
        KEY.isin(pa.array([5, None])),
        pc.coalesce(KEY, pa.scalar(5)) == 5,
        KEY + 1 == 6,
        pc.field("x") == 5.0,
        pc.scalar(True),
        KEY.isin(pa.array(range(1_000))),
    ],
    ids=lambda condition: str(condition)[:40],
)
def test_other_conditions_want_no_certain_values(condition: pc.Expression) -> None:
    assert wanted_values(SCHEMA, condition, SCHEMA.names) == {}


def test_rows_that_pass_drawn_conditions_have_wanted_values() -> None:
    draw = random.Random(11)
    rows = pa.table(
        {
            "k": pa.array([draw.choice((None, *range(6))) for _ in range(400)], pa.int64()),
            "i": pa.array([draw.choice((None, *range(6))) for _ in range(400)], pa.int32()),
            "s": pa.array([draw.choice((None, *"abcde")) for _ in range(400)]),
        }
    )

    def condition(depth: int) -> pc.Expression:
        if depth and draw.random() < 0.6:
            left, right = condition(depth - 1), condition(depth - 1)
            return draw.choice((left & right, left | right, left & right, ~left))
        column = draw.choice((KEY, NUMBER))
        texts = [TEXT.isin([draw.choice("abcde")]), TEXT.isin(draw.sample("abcde", 2))]
        numbers = [column == draw.randrange(6), column.isin(pa.array(draw.sample(range(6), 2))), column < 3]
        return draw.choice((*texts, *numbers, column.is_valid()))

    told = 0
    for _ in range(300):
        expression = condition(3)
        passing = rows.filter(expression)
        for name, values in wanted_values(rows.schema, expression, rows.schema.names).items():
            told += 1
            assert set(passing[name].to_pylist()) <= set(values.to_pylist()), (str(expression), name)
    assert told > 100
