"""Schema changes: what each makes of a schema, and what Paimon does not allow."""

from dataclasses import replace

import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.commit.schema_change import (
    AddColumn,
    ChangeComment,
    ChangeNullability,
    ChangeType,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    SetOption,
    SetTableComment,
    UnsetOption,
    change_schema,
)
from bucketline.state.commit.schema_edit import After, First
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema, decode_schema, encode_schema
from bucketline.state.types.columns_text import parse_columns
from bucketline.state.types.logical import DataField, DataType, TypeRoot, parse_type_text

INT, BIGINT, STRING = parse_type_text("INT"), parse_type_text("BIGINT"), parse_type_text("STRING")


def row(*fields: tuple[int, str, DataType], nullable: bool = True) -> DataType:
    return DataType(TypeRoot.ROW, nullable, fields=tuple(DataField(*f) for f in fields))


def array(element: DataType) -> DataType:
    return DataType(TypeRoot.ARRAY, element=element)


SCHEMA = TableSchema(
    id=3,
    fields=(
        DataField(0, "dt", STRING.not_null()),
        DataField(1, "id", INT.not_null()),
        DataField(2, "v", INT),
        DataField(3, "r", row((4, "a", INT), (5, "b", STRING))),
        DataField(6, "l", array(row((7, "x", INT)))),
        DataField(8, "m", DataType(TypeRoot.MAP, key=STRING.not_null(), value=INT)),
    ),
    highest_field_id=9,
    partition_keys=("dt",),
    primary_keys=("dt", "id"),
    options={"bucket": "2", "sequence.field": "v"},
    comment="old",
    time_ms=1,
)


def changed(*changes: SchemaChange, schema: TableSchema = SCHEMA, has_snapshots: bool = True) -> TableSchema:
    found = change_schema(schema, changes, now_ms=77, has_snapshots=has_snapshots)
    assert decode_schema(encode_schema(found)) == found
    return found


def names(schema: TableSchema) -> list[str]:
    return [f.name for f in schema.fields]


def test_a_new_column_is_last_and_has_a_new_id() -> None:
    found = changed(AddColumn(("n",), BIGINT, comment="new"))
    assert found.fields[-1] == DataField(10, "n", BIGINT, description="new")
    assert (found.id, found.highest_field_id, found.time_ms, found.version) == (4, 10, 77, 3)
    assert found.fields[:-1] == SCHEMA.fields


def test_a_new_row_gets_its_id_before_its_fields() -> None:
    found = changed(AddColumn(("n",), row((0, "a", array(row((0, "b", INT)))), (0, "c", INT))))
    assert found.fields[-1] == DataField(10, "n", row((11, "a", array(row((12, "b", INT)))), (13, "c", INT)))
    assert found.highest_field_id == 13


def test_columns_are_placed_where_they_are_wanted() -> None:
    found = changed(AddColumn(("n",), INT, position=First()), AddColumn(("o",), INT, position=After("dt")))
    assert names(found) == ["n", "dt", "o", "id", "v", "r", "l", "m"]
    assert names(changed(MoveColumn(("m",), After("id")))) == ["dt", "id", "m", "v", "r", "l"]
    assert names(changed(MoveColumn(("id",), First()))) == ["id", "dt", "v", "r", "l", "m"]


def test_fields_inside_rows_arrays_and_maps_are_reached_by_path() -> None:
    found = changed(
        AddColumn(("r", "c"), INT, position=First()),
        AddColumn(("l", "element", "y"), row((0, "z", INT))),
        ChangeType(("l", "element", "x"), BIGINT),
        ChangeType(("m", "value"), BIGINT),
        RenameColumn(("r", "a"), "aa"),
        DropColumn(("r", "b")),
        ChangeComment(("r", "aa"), "why"),
    )
    assert found.field("r").type.fields == (DataField(10, "c", INT), DataField(4, "aa", INT, description="why"))
    assert found.field("l").type == array(row((7, "x", BIGINT), (11, "y", row((12, "z", INT)))))
    assert found.field("m").type.value == BIGINT
    assert found.highest_field_id == 12


def test_a_dropped_columns_id_is_not_used_again() -> None:
    dropped = changed(DropColumn(("m",)))
    again = changed(AddColumn(("m",), INT), schema=dropped)
    assert again.field("m").id == 10 and again.id == 5


def test_adding_what_is_there_changes_nothing() -> None:
    assert changed(AddColumn(("v",), INT)) is SCHEMA
    assert changed(AddColumn(("r",), row((50, "a", INT), (51, "b", STRING)))) is SCHEMA
    assert changed(SetOption("bucket", "2"), UnsetOption("none")) is SCHEMA
    with pytest.raises(SchemaMismatchError, match="already exists, as INT"):
        changed(AddColumn(("v",), BIGINT))


def test_a_rename_keeps_the_id_and_follows_into_keys_and_options() -> None:
    options = {
        "bucket": "2",
        "bucket-key": "id",
        "sequence.field": "v,r",
        "fields.v.ignore-retract": "true",
        "fields.v,r.sequence-group": "m,v",
        "fields.m.nested-key": "v",
        "partial-update.remove-record-on-sequence-group": "v,r",
        "fields.default-aggregate-function": "sum",
    }
    schema = TableSchema(
        0, SCHEMA.fields, 9, primary_keys=("id",), options={k: v for k, v in options.items() if k != "fields.v"}
    )
    found = changed(RenameColumn(("v",), "w"), RenameColumn(("id",), "key"), schema=schema)
    assert found.primary_keys == ("key",)
    assert found.field("w").id == 2 and found.field("key") == DataField(1, "key", INT.not_null())
    assert found.options == {
        "bucket": "2",
        "bucket-key": "key",
        "sequence.field": "w,r",
        "fields.w.ignore-retract": "true",
        "fields.w,r.sequence-group": "m,w",
        "fields.m.nested-key": "v",  # a field inside of m
        "partial-update.remove-record-on-sequence-group": "w,r",
        "fields.default-aggregate-function": "sum",
    }


def test_nullability_may_be_loosened_and_tightened_only_if_allowed() -> None:
    strict = changed(SetOption("alter-column-null-to-not-null.disabled", "false"), ChangeNullability(("v",), False))
    assert strict.field("v").type == INT.not_null()
    assert changed(ChangeNullability(("v",), True), schema=strict).field("v").type == INT
    with pytest.raises(SchemaMismatchError, match=r"alter-column-null-to-not-null\.disabled"):
        changed(ChangeNullability(("v",), False))


def test_comments_are_set_and_removed() -> None:
    found = changed(ChangeComment(("v",), "c"), SetTableComment(None))
    assert found.field("v").description == "c" and found.comment is None
    assert changed(ChangeComment(("v",), None), schema=found).field("v").description is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (AddColumn(("n",), INT.not_null()), "cannot specify NOT NULL"),
        (AddColumn(("n",), INT, position=After("x")), "x does not exist"),
        (AddColumn(("q", "n"), INT), "q does not exist"),
        (AddColumn(("v", "n"), INT), "v.n does not exist"),
        (AddColumn(("l", "n"), INT), "l.n does not exist"),
        (DropColumn(("x",)), "x does not exist"),
        (DropColumn(("id",)), "Cannot drop partition key or primary key"),
        (DropColumn(("dt",)), "Cannot drop partition key or primary key"),
        (DropColumn(("l", "element", "x")), "Cannot drop all fields in l.element"),
        (DropColumn(("m", "value")), "Cannot drop all fields"),
        (RenameColumn(("dt",), "d"), "Cannot rename partition column"),
        (RenameColumn(("v",), "id"), "id already exists"),
        (RenameColumn(("m", "value"), "w"), "can only change its type"),
        (ChangeType(("dt",), STRING), "Cannot update partition column"),
        (ChangeType(("id",), BIGINT), "Cannot update primary key"),
        (ChangeType(("v",), parse_type_text("SMALLINT")), "cannot be converted"),
        (ChangeType(("m", "key"), BIGINT), "m.key does not exist"),
        (ChangeNullability(("id",), True), "nullability of primary key"),
        (MoveColumn(("v",), After("v")), "Cannot move itself"),
    ],
    ids=str,
)
def test_a_change_that_cannot_be_is_refused_naming_the_column(change: SchemaChange, message: str) -> None:
    with pytest.raises(SchemaMismatchError, match=message) as caught:
        changed(change)
    assert caught.value.fields["column"]


@pytest.mark.parametrize(
    "change",
    [
        SetOption("merge-engine", "first-row"),
        SetOption("primary-key", "v"),
        SetOption("bucket", "-1"),
        SetOption("bucket", "0"),
        SetOption("merge-enginee", "1"),
        SetOption("sequence.field", "no_such_column"),
        SetOption("num-levels", "1"),
        UnsetOption("bucket"),
        DropColumn(("v",)),  # the sequence field
        RenameColumn(("r",), "_LEVEL"),
        AddColumn(("_KEY_x",), INT),
    ],
    ids=str,
)
def test_what_would_be_no_table_is_refused(change: SchemaChange) -> None:
    with pytest.raises(OptionError):
        changed(change)


@pytest.mark.parametrize(
    ("key", "same", "other"),
    [("partition.legacy-name", "TRUE", "false"), ("partition.default-name", "__DEFAULT_PARTITION__", "none")],
)
def test_names_of_partition_folders_stay_once_there_are_files(key: str, same: str, other: str) -> None:
    """With other names all readers would look for the files of partitions in other folders."""
    with pytest.raises(OptionError, match=rf"Change '{key}' is not supported yet"):
        changed(SetOption(key, other))
    assert changed(SetOption(key, same)).options[key] == same
    assert changed(SetOption(key, other), has_snapshots=False).options[key] == other
    plain = replace(SCHEMA, partition_keys=(), primary_keys=("id",))
    assert changed(SetOption(key, other), schema=plain).options[key] == other


def test_the_bucket_key_of_an_append_table_keeps_its_type() -> None:
    schema = TableSchema(0, parse_columns("a INT, b INT"), 1, options={"bucket": "2", "bucket-key": "a"})
    with pytest.raises(SchemaMismatchError, match="bucket key"):
        changed(ChangeType(("a",), BIGINT), schema=schema)
    assert changed(ChangeType(("b",), BIGINT), schema=schema).field("b").type == BIGINT


def test_without_snapshots_options_are_free() -> None:
    found = changed(SetOption("bucket-key", "id"), SetOption("bucket", "5"), has_snapshots=False)
    assert found.options["bucket-key"] == "id" and found.options["bucket"] == "5"
    assert changed(SetOption("bucket", "4")).options["bucket"] == "4"


def test_what_was_wrong_before_does_not_stop_other_changes() -> None:
    """A table in a form that this release does not write can still get a column."""
    schema = TableSchema(0, SCHEMA.fields, 9, ("dt",), ("dt", "id"), {"bucket": "-1", "merge-engine": "aggregation"})
    assert names(changed(AddColumn(("n",), INT), schema=schema))[-1] == "n"


def test_several_changes_make_one_version_or_none() -> None:
    assert changed(AddColumn(("n",), INT), DropColumn(("n",))).id == 4  # the id is used up
    with pytest.raises(SchemaMismatchError):
        changed(AddColumn(("n",), INT), DropColumn(("x",)))


def test_new_columns_stand_before_those_of_partitions_where_the_table_asks_for_it() -> None:
    fields = (SCHEMA.fields[2], *SCHEMA.fields[:2], *SCHEMA.fields[3:])
    asking = replace(SCHEMA, fields=fields, options={**SCHEMA.options, "add-column-before-partition": "true"})

    before = names(asking)
    added = AddColumn(("n",), INT), AddColumn(("o",), INT)
    assert before == ["v", "dt", "id", "r", "l", "m"]
    assert names(changed(*added, schema=asking)) == ["v", "n", "o", "dt", "id", "r", "l", "m"]
    assert names(changed(AddColumn(("n",), INT, position=After("id")), schema=asking)) == [
        "v",
        "dt",
        "id",
        "n",
        "r",
        "l",
        "m",
    ]
    assert names(changed(AddColumn(("r", "c"), INT), schema=asking)) == before
    assert names(changed(*added, schema=replace(asking, partition_keys=()))) == [*before, "n", "o"]
    # What a table asks for holds from the next schema on, as in Paimon.
    plain = replace(asking, options=SCHEMA.options)
    assert names(changed(SetOption("add-column-before-partition", "true"), *added, schema=plain)) == [*before, "n", "o"]
