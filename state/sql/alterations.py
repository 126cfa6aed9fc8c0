"""Parses `ALTER TABLE`, in the spelling of Flink or Spark.

Flink's MODIFY declares the whole column, and Spark's ALTER COLUMN changes one property. Both become the same schema
changes.
"""

from collections.abc import Callable

from bucketline.state.commit.schema_change import (
    AddColumn,
    ChangeComment,
    ChangeDefault,
    ChangeNullability,
    ChangeType,
    DropColumn,
    MoveColumn,
    RenameColumn,
    SchemaChange,
    SetOption,
    SetTableComment,
    UnsetOption,
)
from bucketline.state.commit.schema_edit import After, ColumnPath, First, Position
from bucketline.state.sql.dialect import refused
from bucketline.state.sql.queries import read_partition
from bucketline.state.sql.statement import AlterTable, DropPartitions, RenameTable, Statement
from bucketline.state.sql.tags import read_tag
from bucketline.state.sql.words import Words
from bucketline.state.types.columns_text import parse_columns, quoted_name
from bucketline.state.types.logical import DataField

_COLUMN_ENDS = ("FIRST", "AFTER")


def read_alter(words: Words) -> Statement:
    """Parses `ALTER TABLE t ...`."""
    words.expect("ALTER")
    if not words.take("TABLE"):
        raise refused(f"ALTER {words.peek()} is not supported; use ALTER TABLE", statement="ALTER")
    words.verb = "ALTER TABLE"
    missing_ok = words.take("IF", "EXISTS")
    name = words.table()
    if words.take("RENAME", "TO"):
        to = words.table()
        words.end()
        return RenameTable(name, to, missing_ok)
    if words.sees("DROP", "PARTITION") or words.sees("DROP", "IF", "EXISTS", "PARTITION"):
        words.at += 1
        no_partition_ok = words.take("IF", "EXISTS")
        partitions = [_partition(words)]
        while words.take(","):
            partitions.append(_partition(words))
        words.take("PURGE")
        words.end()
        return DropPartitions(name, tuple(partitions), no_partition_ok)
    tag = read_tag(words, name)
    if tag is not None:
        return tag
    action = words.peek()
    if action in _REMEDIES:
        raise refused(f"ALTER TABLE {action} is not supported; {_REMEDIES[action]}", statement="ALTER TABLE")
    if action not in _ACTIONS:
        raise words.wrong(f"one of {', '.join(_ACTIONS)} follows the table's name")
    words.at += 1
    column_missing_ok = action == "DROP" and _takes_if_exists(words)
    changes = _ACTIONS[action](words)
    words.end()
    return AlterTable(name, tuple(changes), missing_ok, column_missing_ok)


def _takes_if_exists(words: Words) -> bool:
    """Skips `COLUMN`, `COLUMNS` and `IF EXISTS` if they come next. Returns True if `IF EXISTS` came."""
    return words.take("COLUMNS", "IF", "EXISTS") or words.take("COLUMN", "IF", "EXISTS") or words.take("IF", "EXISTS")


def _partition(words: Words) -> dict[str, str | None]:
    words.expect("PARTITION")
    values, dynamic = read_partition(words)
    if dynamic:
        raise refused(
            f"ALTER TABLE DROP PARTITION: partition column {dynamic[0]!r} has no value; write {dynamic[0]} = value"
        )
    return values


def _set(words: Words) -> list[SchemaChange]:
    for other in ("LOCATION", "SERDE", "SERDEPROPERTIES", "OWNER"):
        if words.sees(other):
            raise refused(f"ALTER TABLE SET {other} is not supported; set options with SET ('key' = 'value')")
    words.take("TBLPROPERTIES")
    changes: list[SchemaChange] = []
    for key, value in words.options().items():
        changes.append(SetTableComment(value or None) if key == "comment" else SetOption(key, value))
    return changes


def _reset(words: Words) -> list[SchemaChange]:
    """Parses Flink's RESET, or Spark's UNSET TBLPROPERTIES."""
    if words.take("TBLPROPERTIES"):
        words.take("IF", "EXISTS")
    words.expect("(")
    keys = [words.option_key()]
    while words.take(","):
        keys.append(words.option_key())
    words.expect(")")
    return [SetTableComment(None) if key == "comment" else UnsetOption(key) for key in keys]


def read_comment(words: Words) -> AlterTable:
    """Parses `COMMENT ON TABLE t IS 'text'`; NULL removes the comment."""
    words.expect("COMMENT")
    words.expect("ON")
    words.verb = "COMMENT ON"
    if not words.take("TABLE"):
        raise words.wrong(
            "COMMENT ON supports only tables; for a column use ALTER TABLE t ALTER COLUMN c COMMENT '...'"
        )
    name = words.table()
    words.expect("IS")
    comment = None if words.take("NULL") else words.string("a comment")
    words.end()
    return AlterTable(name, (SetTableComment(comment or None),))


def _add(words: Words) -> list[SchemaChange]:
    if words.sees("PARTITION") or words.sees("IF", "NOT", "EXISTS", "PARTITION"):
        raise refused("ALTER TABLE ADD PARTITION is not supported; a partition is created with its first row")
    if words.sees("PRIMARY") or words.sees("CONSTRAINT") or words.sees("WATERMARK"):
        raise words.wrong("keys and watermarks cannot be added; create a table with the key")
    if not words.take("COLUMNS"):
        words.take("COLUMN")
    return list(_each(words, _added))


def _each(words: Words, read: Callable[[Words], list[SchemaChange]]) -> list[SchemaChange]:
    """Returns the changes that `read` returns for each part of a comma-separated list, which may be in parentheses."""
    if not words.take("("):
        changes = read(words)
        while words.take(","):
            changes += read(words)
        return changes
    changes = read(words)
    while words.take(","):
        changes += read(words)
    words.expect(")")
    return changes


def _added(words: Words) -> list[SchemaChange]:
    path, field = _column(words)
    if field.default_value is not None:
        raise refused(
            f"ALTER TABLE: a column must be added without DEFAULT, because existing rows have no value for it; use "
            f"ALTER COLUMN {path[-1]} SET DEFAULT afterwards",
            statement="ALTER TABLE",
        )
    return [AddColumn(path, field.type, comment=field.description, position=_position(words))]


def _modify(words: Words) -> list[SchemaChange]:
    """Parses Flink's MODIFY, which declares the whole new column."""
    if words.take("COMMENT"):
        return [SetTableComment(words.string("a comment") or None)]
    if words.sees("PRIMARY") or words.sees("WATERMARK") or words.sees("CONSTRAINT"):
        raise words.wrong("keys and watermarks cannot be modified")
    words.take("COLUMN")
    return _each(words, _modified)


def _modified(words: Words) -> list[SchemaChange]:
    path, field = _column(words)
    changes: list[SchemaChange] = [ChangeType(path, field.type), ChangeNullability(path, field.type.nullable)]
    if field.description is not None:
        changes.append(ChangeComment(path, field.description or None))
    if field.default_value is not None:
        changes.append(ChangeDefault(path, field.default_value))
    place = _position(words)
    return changes if place is None else [*changes, MoveColumn(path, place)]


def _column(words: Words) -> tuple[ColumnPath, DataField]:
    """Parses the path of a column and its declaration."""
    path = words.path("the name of a column")
    start, end = words.clause(*_COLUMN_ENDS)
    return path, _declared(path, words.source(start, end))


def _declared(path: ColumnPath, text: str) -> DataField:
    """Returns the column that a declaration describes. Raises OptionError for a computed column, and for a declaration
    that is not valid.
    """
    if text.split(maxsplit=1)[0].upper() == "AS":
        raise refused(
            f"ALTER TABLE: the computed column {path[-1]!r} is not supported; compute it where rows are written",
            statement="ALTER TABLE",
        )
    (field,) = parse_columns(f"{quoted_name(path[-1])} {text}")
    return field


def _position(words: Words) -> Position | None:
    if words.take("FIRST"):
        return First()
    if words.take("AFTER"):
        return After(words.name("the name of a column"))
    return None


def _drop(words: Words) -> list[SchemaChange]:
    if words.sees("PRIMARY") or words.sees("CONSTRAINT") or words.sees("WATERMARK"):
        raise words.wrong("keys and watermarks cannot be dropped")
    if not words.take("COLUMNS"):
        words.take("COLUMN")
    return _each(words, lambda w: [DropColumn(w.path("the name of a column"))])


def _rename(words: Words) -> list[SchemaChange]:
    words.take("COLUMN")
    path = words.path("the name of a column")
    words.expect("TO")
    return [RenameColumn(path, words.name("the new name of a column"))]


def _alter(words: Words) -> list[SchemaChange]:
    """Parses Spark's ALTER COLUMN, which changes one property of a column, or one property of each of several
    columns.
    """
    words.take("COLUMN")
    changes = _altered(words)
    while words.take(","):
        changes += _altered(words)
    return changes


def _altered(words: Words) -> list[SchemaChange]:
    path: ColumnPath = words.path("the name of a column")
    if words.take("TYPE"):
        field = _declared(path, words.source(*words.clause()))
        if not field.type.nullable or field.description is not None or field.default_value is not None:
            raise refused(
                "ALTER TABLE ALTER COLUMN ... TYPE takes only a type; write another change after a comma, as in ALTER "
                "COLUMN a TYPE INT, a COMMENT 'x', or use MODIFY for the whole column",
                statement="ALTER TABLE",
            )
        return [ChangeType(path, field.type)]
    if words.take("COMMENT"):
        return [ChangeComment(path, words.string("a comment") or None)]
    if words.take("DROP", "NOT", "NULL"):
        return [ChangeNullability(path, True)]
    if words.take("DROP", "DEFAULT"):
        return [ChangeDefault(path, None)]
    if words.take("SET", "DEFAULT"):
        field = _declared(path, f"STRING DEFAULT {words.source(*words.clause())}")
        return [ChangeDefault(path, field.default_value)]
    if words.take("SET", "NOT", "NULL"):
        return [ChangeNullability(path, False)]
    place = _position(words)
    if place is None:
        raise words.wrong("expected TYPE, COMMENT, FIRST, AFTER, SET or DROP DEFAULT, SET or DROP NOT NULL")
    return [MoveColumn(path, place)]


_REMEDIES = {
    "CHANGE": "use ALTER COLUMN for one property of a column, or MODIFY for the whole column",
    "REPLACE": "use DROP COLUMNS and ADD COLUMNS instead",
    "PARTITION": "use INSERT OVERWRITE to replace partitions, and DROP PARTITION to drop them",
    "RECOVER": "partitions are found in the table's snapshots",
    "CLUSTER": "CALL sys.compact with order_strategy and order_by sorts an append table",
}
_ACTIONS: dict[str, Callable[[Words], list[SchemaChange]]] = {
    "SET": _set,
    "RESET": _reset,
    "UNSET": _reset,
    "ADD": _add,
    "MODIFY": _modify,
    "DROP": _drop,
    "RENAME": _rename,
    "ALTER": _alter,
}
