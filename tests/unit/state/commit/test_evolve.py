"""Input with other columns: evolve, ignore or fail."""

import pyarrow as pa
import pytest

from bucketline.conf.table.choices import EvolutionPolicy
from bucketline.state.commit.evolve import evolve_schema
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.columns_text import parse_columns

SCHEMA = TableSchema(
    0,
    parse_columns("id INT NOT NULL, v INT, t TIMESTAMP(6), s STRING, r ROW<a INT>, l ARRAY<ROW<x INT>>"),
    7,
    primary_keys=("id",),
    options={"bucket": "1"},
)
EVOLVE, IGNORE, FAIL = EvolutionPolicy.EVOLVE, EvolutionPolicy.IGNORE, EvolutionPolicy.FAIL


@pytest.mark.parametrize(
    "incoming",
    [
        {"id": pa.int32(), "v": pa.int32()},
        {"id": pa.int64(), "v": pa.int16(), "s": pa.large_string()},  # keys stay; narrower fits
        {"id": pa.int32(), "t": pa.timestamp("ms"), "r": pa.struct([("a", pa.int8())])},
        {},
    ],
    ids=str,
)
@pytest.mark.parametrize("policy", EvolutionPolicy)
def test_input_that_fits_changes_nothing(incoming: dict[str, pa.DataType], policy: EvolutionPolicy) -> None:
    assert evolve_schema(SCHEMA, pa.schema(incoming), policy) is None


def test_new_columns_and_wider_types_make_one_new_version() -> None:
    incoming = pa.schema(
        [
            pa.field("n", pa.float64(), nullable=False),
            ("v", pa.int64()),
            ("r", pa.struct([("a", pa.int64()), ("b", pa.string())])),
            ("l", pa.list_(pa.struct([("x", pa.int32()), ("y", pa.date32())]))),
        ]
    )
    found = evolve_schema(SCHEMA, incoming, EVOLVE, now_ms=9)
    assert found is not None
    wanted = (
        "id INT NOT NULL, v BIGINT, t TIMESTAMP(6), s STRING, r ROW<a BIGINT, b STRING>, l ARRAY<ROW<x INT, y DATE>>"
    )
    assert [(f.name, str(f.type)) for f in found.fields[:-1]] == [(f.name, str(f.type)) for f in parse_columns(wanted)]
    assert (found.fields[-1].name, str(found.fields[-1].type)) == ("n", "DOUBLE")
    assert (found.id, found.time_ms) == (1, 9)
    assert evolve_schema(found, incoming, EVOLVE) is None
    assert evolve_schema(found, incoming, FAIL) is None


def test_ignore_leaves_the_table_alone_and_fail_names_the_columns() -> None:
    incoming = pa.schema({"v": pa.int64(), "n": pa.string()})
    assert evolve_schema(SCHEMA, incoming, IGNORE) is None
    with pytest.raises(SchemaMismatchError) as caught:
        evolve_schema(SCHEMA, incoming, FAIL)
    assert caught.value.fields["columns"] == ["v", "n"]


@pytest.mark.parametrize("policy", [EVOLVE, FAIL])
def test_types_that_have_nothing_to_do_with_each_other_are_left_to_the_writers_check(policy: EvolutionPolicy) -> None:
    assert evolve_schema(SCHEMA, pa.schema({"v": pa.string()}), policy) is None


def test_a_column_paimon_has_no_type_for_is_refused() -> None:
    with pytest.raises(SchemaMismatchError):
        evolve_schema(SCHEMA, pa.schema({"n": pa.duration("s")}), EVOLVE)
