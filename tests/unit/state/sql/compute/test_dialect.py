"""The one dialect: Spark's, wherever a condition or a value is written, and what an older text meant otherwise."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.state.sql.compute.plan_condition import plan_condition
from bucketline.state.types.columns_text import parse_columns

FIELDS = parse_columns("id INT, amount DECIMAL(12, 2), c STRING, a STRING, s ROW<x INT, y STRING>")


@pytest.fixture
def table(tmp_path: Path) -> bl.Table:
    schema = pa.schema([("id", pa.int32()), ("amount", pa.decimal128(12, 2)), ("c", pa.string())])
    made = bl.create_table(str(tmp_path / "db.db" / "t"), schema, primary_key=("id",), options={"bucket": "2"})
    made.write(
        pa.table({"id": [1, 2, 3, 4], "amount": [2, 3, None, 2], "c": ["a", "it's", "b\\n", "q"]}, schema=schema)
    )
    return made


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ('c = "a"', [1]),
        ("amount / 2 = 1", [1, 4]),
        ("amount / 2 = 1 AND id > 1", [4]),
        ("ID * 2 > amount + 3 OR C = upper(c)", [4]),
        ("c = r'b\\n'", [3]),
        ("c = 'it''s'", [2]),
        ("length(c) = 1 AND id IN (1, 3, 4) AND amount IS NOT NULL", [1, 4]),
    ],
)
def test_a_filter_means_the_same_in_reads_changes_and_queries(table: bl.Table, text: str, ids: list[int]) -> None:
    assert sorted(table.to_arrow(columns=["id"], filter=text)["id"].to_pylist()) == ids
    assert sorted(id for b in table.to_batches(["id"], text) for id in b["id"].to_pylist()) == ids
    warehouse = str(Path(table.path.removeprefix("file:")).parent.parent)
    rows = bl.sql(None, f"SELECT id FROM db.t WHERE {text} ORDER BY id", warehouse=warehouse)
    assert rows["id"].to_pylist() == ids
    table.update(text, {"c": bl.expr("concat(c, '!')")})
    changed = table.to_arrow(filter=pc.ends_with(pc.field("c"), "!"))
    assert sorted(changed["id"].to_pylist()) == ids
    table.delete(text.replace("c = 'it''s'", "c = 'it''s!'").replace('"a"', '"a!"').replace("r'b\\n'", "r'b\\n!'"))
    assert table.to_arrow().num_rows >= 4 - len(ids)


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ('"id" = 5', "write `id` for the column, 'id' for the string"),
        ('c = "a"', "write `a` for the column, 'a' for the string"),
        ("c = 'a\\nb'", "Write r'a\\nb' for a literal backslash"),
        ("c = 'it\\'s'", "Write '' for a quote inside of a string, and r'...' for a literal backslash"),
        ("length(c) > 1 AND c = 'a\\\\b'", "Write r'a\\\\b'"),
        ("CAST(c AS TIMESTAMPTZ) IS NULL", "is called TIMESTAMP_LTZ"),
        ("c = trim(a, 'x')", "trim(BOTH 'x' FROM text)"),
        ("[id] = 1", "as in `odd name`"),
        ("id = 1 and [odd name] = 1", "as in `odd name`"),
    ],
)
def test_what_an_older_script_meant_otherwise_is_refused_with_its_new_spelling(text: str, spelling: str) -> None:
    with pytest.raises(OptionError) as refused:
        plan_condition(text, FIELDS)
    assert spelling in str(refused.value)
    with pytest.raises(OptionError):
        plan_condition(bl.expr(text), FIELDS)


def test_a_name_in_double_quotes_is_refused_in_a_value_too(table: bl.Table) -> None:
    with pytest.raises(OptionError, match="write `amount` for the column"):
        table.update("id = 1", {"c": bl.expr("concat(\"amount\", 'x')")})
    assert table.to_arrow(filter="id = 1")["c"].to_pylist() == ["a"]


def test_a_backslash_before_a_wild_sign_of_like_stays_what_it_was() -> None:
    assert plan_condition(r"c LIKE 'a\%b'", FIELDS).test is None


def test_conditions_that_compute_leave_the_other_ones_to_skip_files() -> None:
    planned = plan_condition("id > 5 AND amount * 2 > id", FIELDS)
    assert str(planned.expression) == str(pc.field("id") > 5)
    assert planned.columns == ("id", "amount")
