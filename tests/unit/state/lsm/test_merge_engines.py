"""Merge engines by example: what Paimon 2.0 was seen to do, and which options it and we refuse."""

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from bucketline.conf.errors import OptionError
from bucketline.state.errors import BucketlineError, SchemaMismatchError
from bucketline.state.lsm.merge.engines import fold_for, merging_of
from bucketline.state.store.table.table import create_table
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND
from bucketline.state.types.logical import parse_type, parse_type_text
from tests.support.models.folding import Case, fold_rows, table_schema

_KINDS = {"+I": 0, "-U": 1, "+U": 2, "-D": 3}
_NAMES = {0: "+I", 1: "-U", 2: "+U", 3: "-D"}


def _merged(options: dict[str, str], columns: str, rows: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The merged row as (kind, values...); rows are (kind, values...) of one key, all columns INT."""
    types = {"k": parse_type_text("INT NOT NULL"), **{c: parse_type_text("INT") for c in columns}}
    keyed = [
        {"k": 1, **dict(zip(columns, values, strict=True)), SEQUENCE: i, VALUE_KIND: _KINDS[kind]}
        for i, (kind, *values) in enumerate(rows)
    ]
    (found,) = fold_rows(Case(types, options, [keyed]))
    return (_NAMES[found[VALUE_KIND]], *(found[c] for c in columns))


_PARTIAL = {"merge-engine": "partial-update"}
_IGNORE = {**_PARTIAL, "ignore-delete": "true"}
_REMOVE = {**_PARTIAL, "partial-update.remove-record-on-delete": "true"}
_GROUP = {**_PARTIAL, "fields.g.sequence-group": "a"}
_SUM_GROUP = {**_GROUP, "fields.a.aggregate-function": "sum"}
_REMOVE_GROUP = {**_GROUP, "partial-update.remove-record-on-sequence-group": "g"}
_SUM = {"merge-engine": "aggregation", "fields.a.aggregate-function": "sum"}


@pytest.mark.parametrize(
    ("options", "columns", "rows", "expected"),
    [
        # A delete that comes first sets the values even where deletes are ignored.
        (_IGNORE, "ab", [("-D", 9, 99), ("+I", None, 3)], ("+I", 9, 3)),
        (_IGNORE, "abc", [("-D", 9, 5, 99), ("-D", 8, 6, 77), ("+I", None, None, 1)], ("+I", 9, 5, 1)),
        (_IGNORE, "abc", [("+I", None, None, 1), ("-D", 9, 5, 99)], ("+I", None, None, 1)),
        # Values of a removed row survive, and any later row brings it back.
        (_REMOVE, "a", [("+I", 10), ("-D", 9), ("-U", 7)], ("+I", 9)),
        (_REMOVE, "ab", [("+I", 1, 10), ("-D", 9, 99), ("+I", None, 30)], ("+I", 9, 30)),
        (_REMOVE, "a", [("+I", 10), ("-D", 9)], ("-D", 9)),
        # An empty sequence leaves its group alone; equal sequences overwrite, even by null.
        (_GROUP, "ag", [("+I", 1, 5), ("+I", 2, None)], ("+I", 1, 5)),
        (_GROUP, "ag", [("+I", 1, 5), ("+I", None, 5)], ("+I", None, 5)),
        (_GROUP, "ag", [("+I", 1, 5), ("+I", 2, 4)], ("+I", 1, 5)),
        (_GROUP, "ag", [("+I", 1, 5), ("-D", 2, 6)], ("+I", None, 6)),
        (_GROUP, "ag", [("+I", 1, 5), ("-D", 2, 4)], ("+I", 1, 5)),
        (_SUM_GROUP, "ag", [("+I", 1, 5), ("+I", 2, 4)], ("+I", 3, 5)),
        (_SUM_GROUP, "ag", [("+I", 5, 5), ("-D", 2, 4)], ("+I", 3, 5)),
        (_REMOVE_GROUP, "agc", [("+I", 1, 5, 7), ("-D", 9, 6, 99)], ("-D", 9, 6, 99)),
        (_REMOVE_GROUP, "agc", [("+I", 1, 5, 7), ("-D", 9, 4, 99)], ("+I", 1, 5, 7)),
        # A retract that comes first acts twice.
        (_GROUP, "agc", [("-D", 9, 5, 99), ("+I", 1, 3, None)], ("+I", None, 5, 99)),
        (_GROUP, "agc", [("-D", 9, 5, 99), ("-D", 8, 6, 77)], ("-D", None, 6, 99)),
        (_GROUP, "agc", [("-D", 9, None, 99), ("+I", None, None, None)], ("+I", 9, None, 99)),
        (_SUM_GROUP, "agc", [("-D", 9, 5, 99), ("+I", 1, 6, None)], ("+I", 1, 6, 99)),
        (_SUM_GROUP, "agc", [("+I", 1, 6, None), ("-D", 9, 5, 99)], ("+I", -8, 6, None)),
        # Aggregation goes on from a removed row's values; retracts alone still make an insert.
        ({**_SUM, "aggregation.remove-record-on-delete": "true"}, "a", [("+I", 1), ("-D", 5), ("+I", 3)], ("+I", 8)),
        ({**_SUM, "aggregation.remove-record-on-delete": "true"}, "a", [("+I", 1), ("-D", 5)], ("-D", 5)),
        (_SUM, "ab", [("+I", 1, 7), ("-D", 5, 7)], ("+I", -4, None)),
        (_SUM, "a", [("-U", 1), ("-D", 5)], ("+I", -6)),
        # A row that is alone is not touched.
        (_PARTIAL, "a", [("-D", 1)], ("-D", 1)),
        (_SUM, "a", [("+U", 1)], ("+U", 1)),
    ],
)
def test_rows_become_what_paimon_was_seen_to_make(
    options: dict[str, str], columns: str, rows: list[tuple[Any, ...]], expected: tuple[Any, ...]
) -> None:
    assert _merged(options, columns, rows) == expected


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("DECIMAL(4, 2)", ["99.99", "99.99"], None),
        ("DECIMAL(4, 2)", ["99.99", "99.99", "-99.99"], "99.99"),
        ("DECIMAL(18, 0)", ["9" * 18] * 3, None),
        ("DECIMAL(20, 0)", ["9" * 20, "9" * 20], None),
        ("DECIMAL(20, 0)", ["9" * 20, "9" * 20, "-5"], "-5"),
    ],
)
def test_a_decimal_sum_that_its_column_cannot_hold_is_null(text: str, values: list[str], expected: str | None) -> None:
    """Sums of up to 18 digits may be too long on the way; longer ones become null, and start again."""
    types = {"k": parse_type_text("INT NOT NULL"), "v": parse_type_text(text)}
    rows = [{"k": 1, "v": Decimal(v), SEQUENCE: i, VALUE_KIND: 0} for i, v in enumerate(values)]
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    (found,) = fold_rows(Case(types, options, [rows]))
    assert (None if found["v"] is None else str(found["v"])) == expected


def test_retracts_without_a_rule_for_them_are_refused_with_the_three_remedies() -> None:
    with pytest.raises(SchemaMismatchError) as caught:
        _merged(_PARTIAL, "a", [("+I", 1), ("-D", 1)])
    for remedy in ("ignore-delete", "partial-update.remove-record-on-delete", "sequence-group"):
        assert remedy in caught.value.message


def test_a_function_that_cannot_take_back_says_which_column_and_what_to_set() -> None:
    options = {"merge-engine": "aggregation", "fields.a.aggregate-function": "max"}
    with pytest.raises(SchemaMismatchError, match=r"column a: .*'max'.*fields\.a\.ignore-retract"):
        _merged(options, "a", [("+I", 1), ("-U", 1)])
    assert _merged({**options, "fields.a.ignore-retract": "true"}, "a", [("+I", 1), ("-U", 9)]) == ("+I", 1)


def test_integers_that_overflow_are_refused_by_column() -> None:
    with pytest.raises(SchemaMismatchError, match="column a: the sum"):
        _merged(_SUM, "a", [("+I", 2**31 - 1), ("+I", 1)])


@pytest.mark.parametrize(
    ("function", "text", "changes", "expected"),
    [
        ("sum", "TINYINT", [(0, 100), (0, 100)], None),
        ("sum", "TINYINT", [(0, 100), (0, 100), (0, -100)], 100),
        ("sum", "BIGINT", [(0, 2**63 - 1), (0, 1)], None),
        ("sum", "BIGINT", [(0, 2**63 - 1), (0, 1), (3, 1)], 2**63 - 1),
        ("sum", "INT", [(3, -(2**31)), (0, 0)], None),
        ("product", "INT", [(0, 2**20), (0, 2**20)], None),
        ("product", "INT", [(0, 2**20), (0, 2**20), (0, 3)], 3),
        ("product", "INT", [(0, -(2**31)), (3, -1)], None),
        ("product", "INT", [(0, 6), (3, 0)], None),
        ("product", "DECIMAL(4, 2)", [(0, Decimal(10)), (3, Decimal(3))], None),
        ("product", "DECIMAL(4, 2)", [(0, Decimal(10)), (3, Decimal(0))], None),
        ("rbm32", "BYTES", [(0, b"x"), (0, b"y")], None),
        ("rbm32", "BYTES", [(0, b"x"), (0, BitMap([1]).serialize()), (0, b"y")], BitMap([1]).serialize()),
    ],
)
def test_rows_of_a_table_that_have_no_result_merge_to_null(
    function: str, text: str, changes: list[tuple[int, Any]], expected: Any
) -> None:
    """Refused here, they would let no read and no compaction of their bucket pass."""
    types = {"k": parse_type_text("INT NOT NULL"), "v": parse_type_text(text)}
    other = [{"k": 2, "v": changes[0][1], SEQUENCE: 9, VALUE_KIND: 0}]
    rows = [{"k": 1, "v": v, SEQUENCE: i, VALUE_KIND: kind} for i, (kind, v) in enumerate(changes)]
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": function}
    case = Case(types, options, [rows, other])
    found = fold_rows(case, fold_for(table_schema(types, options)))
    assert [row["v"] for row in found] == [expected, other[0]["v"]]
    with pytest.raises(SchemaMismatchError, match="column v"):
        fold_rows(case)


def test_lookups_fold_lone_rows_as_well() -> None:
    types = {"k": parse_type_text("INT NOT NULL"), "a": parse_type_text("INT")}
    rows = [[{"k": 1, "a": 5, SEQUENCE: 0, VALUE_KIND: 1}]]
    fold = fold_for(table_schema(types, _SUM))
    looked_up = type(fold)(fold.columns, folds_lone_rows=True)
    assert fold_rows(Case(types, _SUM, rows), looked_up) == [{"k": 1, "a": -5, SEQUENCE: 0, VALUE_KIND: 0}]
    assert fold_rows(Case(types, _SUM, rows), fold) == rows[0]


def test_no_rows_fold_to_no_rows() -> None:
    types = {"k": parse_type_text("INT NOT NULL"), "a": parse_type_text("INT")}
    for fold in (fold_for(table_schema(types, _PARTIAL)), fold_for(table_schema(types, _SUM))):
        schema = pa.schema({"k": pa.int32(), "a": pa.int32(), SEQUENCE: pa.int64(), VALUE_KIND: pa.int8()})
        assert fold.fold(schema.empty_table(), np.zeros(0, bool)).num_rows == 0


def test_a_read_of_some_columns_also_needs_the_sequences_of_their_groups() -> None:
    types = {n: parse_type_text("INT") for n in "kabcghi"}
    options = {**_PARTIAL, "fields.g.sequence-group": "a", "fields.h,i.sequence-group": "b"}
    schema = table_schema(types, options)
    assert merging_of(schema).columns_to_merge(["a"]) == ("a", "g")
    assert merging_of(schema).columns_to_merge(["c"]) == ("c",)
    assert merging_of(schema).columns_to_merge(["i"]) == ("i", "h")
    removing = {**options, "partial-update.remove-record-on-sequence-group": "g"}
    assert merging_of(table_schema(types, removing)).columns_to_merge(["c"]) == ("c", "g")


_TYPES = {
    "k": "INT NOT NULL",
    "a": "INT",
    "b": "BOOLEAN",
    "s": "STRING",
    "t": "VARCHAR(9)",
    "g": "BIGINT",
    "h": "BIGINT",
    "y": "BYTES",
}
_AGG = {"merge-engine": "aggregation"}


@pytest.mark.parametrize(
    ("options", "key", "column"),
    [
        ({**_AGG, "fields.a.aggregate-function": "summ"}, "fields.a.aggregate-function", "a"),
        ({**_AGG, "fields.a.aggregate-function": "count"}, "fields.a.aggregate-function", "a"),
        ({**_AGG, "fields.default-aggregate-function": "nothing"}, "fields.default-aggregate-function", "a"),
        ({**_AGG, "fields.s.aggregate-function": "sum"}, "fields.s.aggregate-function", "s"),
        ({**_AGG, "fields.b.aggregate-function": "max"}, "fields.b.aggregate-function", "b"),
        ({**_AGG, "fields.a.aggregate-function": "bool_or"}, "fields.a.aggregate-function", "a"),
        ({**_AGG, "fields.a.aggregate-function": "nested_update"}, "fields.a.aggregate-function", "a"),
        ({**_AGG, "fields.n.aggregate-function": "nested_partial_update"}, "fields.n.nested-key", "n"),
        (
            {**_AGG, "fields.n.aggregate-function": "nested_update", "fields.n.nested-key": "z"},
            "fields.n.nested-key",
            "n",
        ),
        ({**_AGG, "fields.x.aggregate-function": "sum"}, "fields.x.aggregate-function", "x"),
        ({**_AGG, "fields.a.ignore-retract": "yes"}, "fields.a.ignore-retract", None),
        (
            {**_AGG, "aggregation.remove-record-on-delete": "true", "fields.a.ignore-retract": "true"},
            "fields.a.ignore-retract",
            "a",
        ),
        ({**_AGG, "sequence.field": "g", "fields.g.aggregate-function": "sum"}, "fields.g.aggregate-function", "g"),
        ({**_PARTIAL, "fields.x.sequence-group": "a"}, "fields.x.sequence-group", "x"),
        ({**_PARTIAL, "fields.g.sequence-group": "x"}, "fields.g.sequence-group", "x"),
        ({**_PARTIAL, "fields.g.sequence-group": "k"}, "fields.g.sequence-group", "k"),
        ({**_PARTIAL, "fields.g.sequence-group": "a", "fields.h.sequence-group": "a"}, "fields.h.sequence-group", "a"),
        (
            {**_PARTIAL, "fields.g.sequence-group": "a", "fields.g.aggregate-function": "sum"},
            "fields.g.aggregate-function",
            "g",
        ),
        ({**_PARTIAL, "fields.a.aggregate-function": "sum"}, "fields.a.aggregate-function", "a"),
        ({**_REMOVE, "ignore-delete": "true"}, "partial-update.remove-record-on-delete", None),
        ({**_REMOVE, "fields.g.sequence-group": "a"}, "partial-update.remove-record-on-delete", None),
        ({**_REMOVE_GROUP, "ignore-delete": "true"}, "partial-update.remove-record-on-sequence-group", None),
        (
            {**_GROUP, "partial-update.remove-record-on-sequence-group": "h"},
            "partial-update.remove-record-on-sequence-group",
            "h",
        ),
    ],
    ids=str,
)
def test_options_that_do_not_fit_are_refused_by_option_and_column(
    options: dict[str, str], key: str, column: str | None, tmp_path: Path
) -> None:
    with pytest.raises(OptionError) as caught:
        fold_for(table_schema(_types(), options))
    assert caught.value.fields["key"] == key
    assert caught.value.fields.get("column") == column
    assert key in caught.value.message and (column or "") in caught.value.message
    path = tmp_path / "db.db" / "t"
    with pytest.raises(OptionError) as at_creation:
        create_table(str(path), _arrow(), ["k"], options={"bucket": "1", **options})
    assert at_creation.value.fields["key"] == key
    assert not path.exists()


@pytest.mark.parametrize(
    ("texts", "expected"),
    [([" ", "\t"], None), (["", None, "  "], None), ([" ", "a", "", "b"], "a,b"), ([" "], " "), ([None, None], None)],
)
def test_blank_texts_add_nothing_to_a_list_and_alone_they_make_none(
    texts: list[str | None], expected: str | None
) -> None:
    """A key with a single row keeps it, blank or not. Paimon 1.4 adds blank texts as any others."""
    types = {"k": parse_type_text("INT NOT NULL"), "v": parse_type_text("STRING")}
    rows = [{"k": 1, "v": v, SEQUENCE: i, VALUE_KIND: 0} for i, v in enumerate(texts)]
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"}
    assert [row["v"] for row in fold_rows(Case(types, options, [rows]))] == [expected]


def test_a_late_null_stays_where_a_list_has_blank_texts_alone() -> None:
    options = {
        "merge-engine": "partial-update",
        "fields.v.aggregate-function": "listagg",
        "fields.g.sequence-group": "v",
    }
    types = {"k": parse_type("INT NOT NULL"), "g": parse_type("INT"), "v": parse_type("STRING")}
    rows = [
        {"k": 1, "g": g, "v": v, "_SEQUENCE_NUMBER": i, "_VALUE_KIND": 0}
        for i, (g, v) in enumerate([(1, None), (0, ""), (0, None)])
    ]
    assert [row["v"] for row in fold_rows(Case(types, options, [rows]))] == [None]


def test_a_sum_of_doubles_beyond_the_largest_is_infinite() -> None:
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    types = {"k": parse_type("INT NOT NULL"), "v": parse_type("DOUBLE")}
    rows = [{"k": 1, "v": 1e308, "_SEQUENCE_NUMBER": i, "_VALUE_KIND": 0} for i in range(3)]
    assert [row["v"] for row in fold_rows(Case(types, options, [rows]))] == [float("inf")]


def test_listagg_takes_text_without_limit_only() -> None:
    with pytest.raises(OptionError, match=r"column t is VARCHAR\(9\), but listagg takes STRING only"):
        fold_for(table_schema(_types(), {**_AGG, "fields.t.aggregate-function": "listagg"}))


@pytest.mark.parametrize("function", ["theta_sketch", "hll_sketch"])
def test_sketches_name_their_package_where_it_is_missing_and_write_nothing(function: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    code = (
        "import sys; sys.modules['datasketches'] = None\n"
        "import pyarrow as pa\n"
        "from bucketline.state.errors import UnsupportedTableError\n"
        "from bucketline.state.store.table.table import create_table\n"
        "schema = pa.schema({'k': pa.int32(), 'v': pa.binary()})\n"
        "options = {'bucket': '1', 'merge-engine': 'aggregation', 'fields.v.aggregate-function': sys.argv[2]}\n"
        "try:\n    create_table(sys.argv[1], schema, ['k'], options=options)\n"
        "except UnsupportedTableError as e:\n    print(e.fields['option'], e.fields['column'], e.message)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(path), function], capture_output=True, text=True, check=True
    ).stdout
    assert found.startswith(f"fields.v.aggregate-function v column v: aggregate function '{function}' needs")
    assert "pip install datasketches" in found
    assert not path.exists()


@pytest.mark.parametrize("function", ["rbm32", "rbm64", "theta_sketch", "hll_sketch"])
def test_sets_are_stored_in_bytes_only(function: str) -> None:
    with pytest.raises(OptionError, match="column s is STRING, but this function takes VARBINARY"):
        fold_for(table_schema(_types(), {**_AGG, "fields.s.aggregate-function": function}))


def test_options_of_unknown_columns_are_refused_for_every_engine(tmp_path: Path) -> None:
    with pytest.raises(BucketlineError, match="Field x can not be found"):
        create_table(
            str(tmp_path / "t"), _arrow(), ["k"], options={"bucket": "1", "fields.x.aggregate-function": "sum"}
        )


def _types() -> dict[str, Any]:
    row = {"type": "ROW", "fields": [{"id": 90, "name": "x", "type": "INT"}]}
    return {
        **{name: parse_type_text(text) for name, text in _TYPES.items()},
        "n": parse_type({"type": "ARRAY", "element": row}),
    }


def _arrow() -> pa.Schema:
    kinds = {
        "INT": pa.int32(),
        "BOOLEAN": pa.bool_(),
        "STRING": pa.string(),
        "BIGINT": pa.int64(),
        "BYTES": pa.binary(),
    }
    columns = [pa.field(n, kinds.get(t.split(" ")[0], pa.string())) for n, t in _TYPES.items()]
    return pa.schema([*columns, pa.field("n", pa.list_(pa.struct([pa.field("x", pa.int32())])))])
