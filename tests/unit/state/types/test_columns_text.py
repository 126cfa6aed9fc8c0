"""SQL column text to fields: what is understood, and that everything else is refused by place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.conf.errors import OptionError
from bucketline.state.store.table.table import create_table, handle_of, open_table
from bucketline.state.types.columns_text import parse_columns, type_text
from bucketline.state.types.logical import DataType, TypeRoot


def _types(text: str) -> list[str]:
    return [str(f.type) for f in parse_columns(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BIGINT NOT NULL", "BIGINT NOT NULL"),
        ("long", "BIGINT"),
        ("VARCHAR(20)", "VARCHAR(20)"),
        ("STRING null", "STRING"),
        ("VARCHAR(2147483647)", "STRING"),
        ("char", "CHAR(1)"),
        ("DECIMAL", "DECIMAL(10, 0)"),
        ("dec( 12 ,2 ) not null", "DECIMAL(12, 2) NOT NULL"),
        ("DECIMAL(5)", "DECIMAL(5, 0)"),
        ("TIMESTAMP", "TIMESTAMP(6)"),
        ("TIMESTAMP_NTZ(3)", "TIMESTAMP(3)"),
        ("TIMESTAMP(4) WITHOUT TIME ZONE NOT NULL", "TIMESTAMP(4) NOT NULL"),
        ("DOUBLE PRECISION NOT NULL", "DOUBLE NOT NULL"),
        ("TIMESTAMP(9) WITH LOCAL TIME ZONE", "TIMESTAMP(9) WITH LOCAL TIME ZONE"),
        ("TIMESTAMP_LTZ(3)", "TIMESTAMP(3) WITH LOCAL TIME ZONE"),
        ("TIME(3)", "TIME(3)"),
    ],
)
def test_atomic_types_are_read_as_paimon_means_them(text: str, expected: str) -> None:
    assert _types(f"a {text}") == [expected]


def test_names_comments_and_order_are_kept() -> None:
    found = parse_columns("id BIGINT, `odd ``name` INT COMMENT 'it''s odd, (so)', \"Groß\" STRING, 日本 DATE -- end")
    assert [f.name for f in found] == ["id", "odd `name", "Groß", "日本"]
    assert [f.description for f in found] == [None, "it's odd, (so)", None, None]


def test_words_of_sql_may_be_names() -> None:
    assert [f.name for f in parse_columns("key INT, comment STRING, date DATE, primary INT")] == [
        "key",
        "comment",
        "date",
        "primary",
    ]


def test_nested_types_number_their_parts_depth_first() -> None:
    (row, after) = parse_columns(
        "place ROW<lat DOUBLE NOT NULL, tags MAP<STRING, ARRAY<STRUCT<x: INT>>> COMMENT 'c'> NOT NULL, z INT"
    )
    assert (row.id, after.id) == (0, 4)
    assert not row.type.nullable
    lat, tags = row.type.fields
    assert (lat.id, tags.id, tags.description) == (1, 2, "c")
    assert tags.type.value is not None and tags.type.value.element is not None
    assert [f.id for f in tags.type.value.element.fields] == [3]


def test_other_nested_forms() -> None:
    vector, multiset, row = parse_columns("v VECTOR<FLOAT, 3>, m MULTISET<STRING>, r ROW(a INT)")
    assert (vector.type.root, vector.type.length) == (TypeRoot.VECTOR, 3)
    assert multiset.type.element == DataType(TypeRoot.VARCHAR, length=2147483647)
    assert row.type.fields[0].name == "a"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no columns"),
        ("  -- nothing", "no columns"),
        ("id", "expected a type"),
        ("id BIGNIT", "did you mean 'BIGINT'"),
        ("id INT,", "name of a column"),
        ("id INT name STRING", "NAME is not supported"),
        ("id INT) x", "expected ','"),
        ("id INT PRIMARY KEY", "PRIMARY is not supported"),
        ("id INT, PRIMARY KEY (id)", "primary-key"),
        ("v VARCHAR", "VARCHAR needs a length"),
        ("v VARCHAR(0)", "length from 1"),
        ("v VARCHAR(99999999999)", "expected a number"),
        ("v STRING(3)", "has more numbers in parentheses"),
        ("d DECIMAL(39, 2)", "1 to 38"),
        ("d DECIMAL(3, 5)", "scale"),
        ("d DECIMAL(3, -1)", "cannot read '-1"),
        ("i INT(3)", "has more numbers in parentheses"),
        ("t TIMESTAMP(10)", "0 to 9"),
        ("t TIMESTAMP WITH TIME ZONE", "no type TIMESTAMP WITH TIME ZONE"),
        ("a ARRAY", "angle brackets"),
        ("a ARRAY<INT", "expected '>'"),
        ("a MAP<INT>", "expected ','"),
        ("v VARIANT", "not supported"),
        ("a INT COMMENT x", "COMMENT needs"),
        ("a-b INT", "cannot read '-b INT'"),
        ("`a INT", "backticks"),
        ("a " + "ARRAY<" * 5000, "nested in each other"),
        ("r ROW<a INT DEFAULT 3>", "DEFAULT is not supported"),
        ("a INT DEFAULT b + 1", "DEFAULT needs a literal"),
        ("a STRING DEFAULT 'it''s'", "a quote or a backslash inside"),
        ("a INT DEFAULT", "found nothing"),
    ],
)
def test_what_is_no_list_of_columns_is_refused_by_place(text: str, says: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_columns(text)
    assert says in caught.value.message


@given(st.text(alphabet="aINT<>(),:'`\" 1ROWMAPnull\n-", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse_columns(text)
    except OptionError:
        return
    assert found and all(f.name for f in found)


def test_a_table_made_from_text_keeps_types_that_arrow_cannot_say(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = str(tmp_path_factory.mktemp("warehouse") / "t")
    create_table(path, "id INT, name VARCHAR(20), at TIMESTAMP(4)", primary_key=["id"], options={"bucket": "1"})
    found = handle_of(open_table(path)).table_schema
    assert [str(f.type) for f in found.fields] == ["INT NOT NULL", "VARCHAR(20)", "TIMESTAMP(4)"]
    assert found.highest_field_id == 2


@pytest.mark.parametrize(
    "text",
    [
        "DECIMAL(12, 2) NOT NULL",
        "ARRAY<INT NOT NULL> NOT NULL",
        "MAP<STRING NOT NULL, ROW<`a ``b` INT, c BYTES COMMENT 'it''s'>>",
        "VECTOR<FLOAT, 3>",
        "MULTISET<TIMESTAMP(3) WITH LOCAL TIME ZONE>",
    ],
)
def test_a_type_is_written_as_it_is_read(text: str) -> None:
    assert type_text(parse_columns(f"c {text}")[0].type) == text
