"""SQL text → statements, in both spellings; what is not supported is named."""

from typing import Any

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
    SetOption,
    SetTableComment,
    UnsetOption,
)
from bucketline.state.commit.schema_edit import After, First
from bucketline.state.sql.dialect import as_spark_reads
from bucketline.state.sql.parse import parse_script, parse_statement
from bucketline.state.sql.statement import (
    AlterTable,
    Call,
    CreateCatalog,
    CreateDatabase,
    CreateTable,
    CreateTag,
    Delete,
    DeleteTags,
    Describe,
    Drop,
    DropPartitions,
    Insert,
    Kind,
    Merge,
    MergeAction,
    Query,
    Refresh,
    RenameTable,
    Reset,
    Set,
    Show,
    TableReference,
    TruncateTable,
    Update,
    Use,
)
from bucketline.state.types.columns_text import parse_columns

T = TableReference("t")
INT, STRING = (f.type for f in parse_columns("a INT, b STRING"))


def created(text: str) -> CreateTable:
    found = parse_statement(text)
    assert isinstance(found, CreateTable)
    return found


def test_flink_and_spark_spell_the_same_table() -> None:
    flink = created(
        "CREATE TABLE IF NOT EXISTS db.t (k BIGINT COMMENT 'it''s', v STRING, dt STRING, "
        "PRIMARY KEY (k, dt) NOT ENFORCED) COMMENT 'c' PARTITIONED BY (dt) "
        "WITH ('bucket' = '2', 'merge-engine' = 'first-row')"
    )
    assert (flink.name, flink.exist_ok, flink.comment) == (TableReference("t", "db"), True, "c")
    assert flink.columns == "k BIGINT COMMENT 'it''s', v STRING, dt STRING"
    assert (flink.primary_key, flink.partition_by) == (("k", "dt"), ("dt",))
    assert flink.options == {"bucket": "2", "merge-engine": "first-row"}
    spark = created(
        'create table t (k BIGINT, v STRING) USING paimon PARTITIONED BY (dt STRING) COMMENT "c" '
        "TBLPROPERTIES (primary-key='k,dt', bucket = 2, 'write-only'=true) -- a comment\n"
    )
    assert spark.columns == "k BIGINT, v STRING, dt STRING"
    assert (spark.partition_by, spark.comment) == (("dt",), "c")
    assert spark.options == {"primary-key": "k,dt", "bucket": "2", "write-only": "true"}


@pytest.mark.parametrize(
    "columns",
    ["k INT PRIMARY KEY NOT ENFORCED, v INT", "CONSTRAINT pk PRIMARY KEY (k) NOT ENFORCED, k INT, v INT"],
)
def test_a_primary_key_may_stand_at_its_column_or_have_a_name(columns: str) -> None:
    found = created(f"CREATE TABLE t ({columns})")
    assert (found.primary_key, found.columns) == (("k",), "k INT, v INT")


def test_types_of_paimon_are_kept_as_they_are_written() -> None:
    columns = "a ROW<x INT, y ARRAY<STRING>>, m MULTISET<INT>, t TIMESTAMP_LTZ(6), u TIMESTAMP(6) WITH LOCAL TIME ZONE"
    assert created(f"CREATE TABLE t ({columns})").columns == columns


def test_columns_come_from_another_table_or_from_a_query() -> None:
    like = created("CREATE TABLE t WITH ('bucket'='1') LIKE db.s (EXCLUDING OPTIONS)")
    assert (like.like, like.like_options, like.options) == (TableReference("s", "db"), False, {"bucket": "1"})
    query = created("CREATE TABLE t PARTITIONED BY (dt) AS WITH q AS (SELECT 1 a) SELECT * FROM q").query
    assert query is not None and query.text.startswith("WITH q") and query.relations == ()


STATEMENTS: dict[str, Any] = {
    "CREATE CATALOG c WITH ('type'='paimon', 'warehouse'='/w')": CreateCatalog(
        "c", {"type": "paimon", "warehouse": "/w"}, False
    ),
    "CREATE DATABASE IF NOT EXISTS c.db": CreateDatabase("db", "c", True),
    "DROP TABLE IF EXISTS db.t": Drop(Kind.TABLE, ("db", "t"), True),
    "DROP SCHEMA db CASCADE": Drop(Kind.DATABASE, ("db",), False, True),
    "USE db": Use(Kind.DATABASE, ("db",)),
    "USE CATALOG c": Use(Kind.CATALOG, ("c",)),
    "USE c.db": Use(Kind.DATABASE, ("c", "db")),
    "SHOW TABLES IN db LIKE 'a*'": Show("TABLES", ("db",), "a*"),
    "SHOW VIEWS FROM db 'a*'": Show("VIEWS", ("db",), "a*"),
    "REFRESH TABLE t": Refresh(T),
    "SHOW CREATE TABLE t": Show("CREATE TABLE", ("t",)),
    "DESC EXTENDED t": Describe(T),
    "SHOW COLUMNS IN t IN db": Show("COLUMNS", ("db", "t")),
    "SHOW DATABASES IN c LIKE 'd*'": Show("DATABASES", ("c",), "d*"),
    "SHOW PARTITIONS t PARTITION (dt='1')": Show("PARTITIONS", ("t",), None, {"dt": "1"}),
    "SHOW TBLPROPERTIES t ('bucket')": Show("OPTIONS", ("t",), None, None, "bucket"),
    "SHOW TAGS t": Show("TAGS", ("t",)),
    "ALTER TABLE t CREATE TAG IF NOT EXISTS `x-1` AS OF VERSION 2 RETAIN 12 HOURS": CreateTag(
        T, "x-1", True, 2, "12 h"
    ),
    "ALTER TABLE t CREATE TAG x RETAIN 7 DAYS": CreateTag(T, "x", False, None, "7 d"),
    "ALTER TABLE t DELETE TAG IF EXISTS `x,y`": DeleteTags(T, ("x", "y"), True),
    "SET 'execution.runtime-mode' = 'batch'": Set("execution.runtime-mode", "batch"),
    "SET spark.paimon.scan.snapshot-id=3": Set("spark.paimon.scan.snapshot-id", "3"),
    "SET a.b = c d -- comment\n": Set("a.b", "c d"),
    "SET": Set(None, None),
    "RESET 'a.b'": Reset("a.b"),
    "TRUNCATE TABLE t PARTITION (dt = '1')": TruncateTable(T, {"dt": "1"}),
    "ALTER TABLE t RENAME TO u": RenameTable(T, TableReference("u")),
    "ALTER TABLE t DROP PARTITION (dt='1', hr=2), PARTITION (dt='3')": DropPartitions(
        T, ({"dt": "1", "hr": "2"}, {"dt": "3"})
    ),
    "CALL sys.compact('default.T', '', '')": Call("compact", ("default.T", "", ""), {}),
    "CALL c.sys.delete_tag('T', 'x')": Call("delete_tag", ("T", "x"), {}, "c"),
    "call SYS.Rescale(`table` => 'T', bucket_num => 1, `partition` => NULL)": Call(
        "rescale", (), {"table": "T", "bucket_num": "1", "partition": None}
    ),
}


@pytest.mark.parametrize("text", STATEMENTS)
def test_statements_become_values(text: str) -> None:
    assert parse_statement(text) == STATEMENTS[text]


CHANGES: dict[str, list[Any]] = {
    "ADD c INT COMMENT 'x' FIRST": [AddColumn(("c",), INT, "x", First())],
    "ADD COLUMNS (c INT, d STRING AFTER c)": [AddColumn(("c",), INT), AddColumn(("d",), STRING, None, After("c"))],
    "ADD COLUMN a.b INT": [AddColumn(("a", "b"), INT)],
    "DROP COLUMN c": [DropColumn(("c",))],
    "DROP (c, d)": [DropColumn(("c",)), DropColumn(("d",))],
    "RENAME c TO d": [RenameColumn(("c",), "d")],
    "RENAME COLUMN c TO d": [RenameColumn(("c",), "d")],
    "MODIFY c INT COMMENT 'y' AFTER b": [
        ChangeType(("c",), INT),
        ChangeNullability(("c",), True),
        ChangeComment(("c",), "y"),
        MoveColumn(("c",), After("b")),
    ],
    "MODIFY COMMENT 'new'": [SetTableComment("new")],
    "ALTER COLUMN c TYPE INT": [ChangeType(("c",), INT)],
    "ALTER COLUMN c COMMENT 'y'": [ChangeComment(("c",), "y")],
    "ALTER COLUMN c DROP NOT NULL": [ChangeNullability(("c",), True)],
    "ALTER COLUMN c FIRST": [MoveColumn(("c",), First())],
    "SET ('a'='b')": [SetOption("a", "b")],
    "SET TBLPROPERTIES ('a'='b', 'comment'='c')": [SetOption("a", "b"), SetTableComment("c")],
    "RESET ('a', 'b')": [UnsetOption("a"), UnsetOption("b")],
    "UNSET TBLPROPERTIES IF EXISTS ('a')": [UnsetOption("a")],
}


@pytest.mark.parametrize("text", CHANGES)
def test_alter_table_becomes_changes_of_the_schema(text: str) -> None:
    assert parse_statement(f"ALTER TABLE t {text}") == AlterTable(T, tuple(CHANGES[text]))


def relations(text: str) -> list[tuple[str, dict[str, str]]]:
    found = parse_statement(text)
    assert isinstance(found, Query)
    return [(str(r.name), dict(r.options)) for r in found.relations]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM t VERSION AS OF 3", [("t", {"scan.version": "3"})]),
        ("SELECT * FROM db.t FOR SYSTEM_VERSION AS OF 'tag' AS x", [("db.t", {"scan.version": "tag"})]),
        ("SELECT * FROM t TIMESTAMP AS OF 10", [("t", {"scan.timestamp-millis": "10000"})]),
        (
            "SELECT * FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '1970-01-02 00:00:00Z' x, u",
            [("t", {"scan.timestamp-millis": "86400000"}), ("u", {})],
        ),
        (
            "SELECT * FROM t FOR SYSTEM_TIME AS OF TIMESTAMP '1970-01-02 00:00:00Z' + INTERVAL '2' HOURS AS x",
            [("t", {"scan.timestamp-millis": "93600000"})],
        ),
        (
            "SELECT * FROM t /*+ OPTIONS('scan.timestamp' = '1970-01-02 00:00:00Z') */",
            [("t", {"scan.timestamp-millis": "86400000"})],
        ),
        (
            "SELECT * FROM t /*+ OPTIONS('branch'='b', 'scan.snapshot-id'='1') */ x",
            [("t", {"branch": "b", "scan.snapshot-id": "1"})],
        ),
        (
            "SELECT * FROM c.db.`t$branch_b$files` JOIN T$audit_log l ON 1=1",
            [("c.db.t$branch_b$files", {}), ("T$audit_log", {})],
        ),
        ("WITH t AS (SELECT * FROM u) SELECT * FROM t", [("u", {})]),
        ("WITH t AS (SELECT * FROM t) SELECT * FROM t", [("t", {})]),
        ("SELECT /*+ BROADCAST(t) */ * FROM t /* a comment */", [("t", {})]),
    ],
)
def test_tables_of_a_query_carry_their_version_and_options(text: str, expected: list[Any]) -> None:
    assert relations(text) == expected


def test_rows_are_inserted_into_columns_and_partitions() -> None:
    found = parse_statement(
        "INSERT OVERWRITE TABLE db.t /*+ OPTIONS('a'='b') */ PARTITION (dt='1', hr) (x, y) SELECT 1, 2"
    )
    assert isinstance(found, Insert)
    assert (str(found.table.name), found.table.options, found.overwrite) == ("db.t", {"a": "b"}, True)
    assert (found.partition, found.dynamic, found.columns) == ({"dt": "1"}, ("hr",), ("x", "y"))
    plain = parse_statement("INSERT INTO t (SELECT * FROM u)")
    assert isinstance(plain, Insert) and plain.columns is None and len(plain.query.relations) == 1


def test_changes_of_rows_name_the_table_its_alias_and_what_is_set() -> None:
    update = parse_statement("UPDATE db.t AS x SET x.a = 1, b = b + 1 WHERE a > 1")
    assert isinstance(update, Update)
    assert (str(update.table.name), update.alias, list(update.assignments)) == ("db.t", "x", [("a",), ("b",)])
    delete = parse_statement("DELETE FROM t")
    assert isinstance(delete, Delete) and delete.where is None
    merge = parse_statement(
        "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)"
    )
    assert isinstance(merge, Merge) and merge.matched == (MergeAction("update"),)
    assert [list(a.values or ()) for a in merge.not_matched] == [[("k",)]] and merge.by_source == ()


def test_the_semicolon_after_a_call_may_be_missing_at_the_end_of_its_line() -> None:
    script = "call sys.compact(`table` => 'T')\nINSERT INTO T VALUES (5, (50));\nCALL sys.compact('T') -- again\n"
    texts = [text for text, _ in parse_script(script + "SHOW TABLES")]
    assert texts == [
        "call sys.compact(`table` => 'T')",
        "INSERT INTO T VALUES (5, (50))",
        "CALL sys.compact('T')",
        "-- again\nSHOW TABLES",
    ]
    with pytest.raises(OptionError, match="found 'INSERT'"):
        parse_script("CALL sys.compact('T') INSERT INTO T VALUES (1)")
    with pytest.raises(OptionError):
        parse_script("SELECT count(*)\nINSERT INTO T VALUES (1)")


def test_semicolons_end_statements_but_not_inside_texts() -> None:
    texts = [text for text, _ in parse_script("SET a = 'x;y'; -- c;\n;; SHOW TABLES ;")]
    assert texts[0] == "SET a = 'x;y'"
    assert len(texts) == 2 and texts[1].endswith("SHOW TABLES")


REFUSED = {
    "SELEC 1": "'SELEC' is not supported; did you mean 'SELECT'?",
    "EXPLAIN SELECT 1": "'EXPLAIN' is not supported; use the DataFrame",
    "CREATE VIEW v AS SELECT 1": "CREATE VIEW V AS is not supported; use CREATE TABLE",
    "CREATE TABLE t (a INT) LOCATION '/x'": "LOCATION is not supported: the folder of a table is always",
    "CREATE TABLE t (a INT) USING parquet": "USING parquet is not supported",
    "CREATE TABLE t (a INT, WATERMARK FOR a AS a)": "WATERMARK is only for streams",
    "CREATE TABLE t (a INT, b AS a + 1)": r"computed and metadata columns \(B AS \.\.\.\)",
    "CREATE TABLE t (a INT) WITH ('a'='b', 'a'='c')": "option 'a' is given twice",
    "CREATE TABLE t": "the columns come from a list",
    "ALTER TABLE t ADD PRIMARY KEY (a)": "keys and watermarks cannot be added",
    "ALTER TABLE t ADD PARTITION (dt='1')": "a partition is created with its first row",
    "ALTER TABLE t RENAME TAG x": "expected TO, but the statement ends",
    "ALTER TABLE t ADD IF NOT EXISTS PARTITION (dt='1')": "a partition is created with its first row",
    "ALTER TABLE t ADD x AS a + 1": "the computed column 'x' is not supported",
    "ALTER TABLE t ADD x INT METADATA": "column 'x': METADATA is not supported",
    "ALTER TABLE t SET LOCATION '/x'": "ALTER TABLE SET LOCATION is not supported",
    "ALTER TABLE t PARTITION (dt='1') RENAME TO PARTITION (dt='2')": "use INSERT OVERWRITE to replace partitions",
    "/*+ OPTIONS('branch'='b') */ TRUNCATE TABLE t": "the hint .* has no effect here; remove it",
    "/*+ OPTIONS('scan.snapshot-id'='1') */ SELECT a FROM t": "must come right after the name of a table",
    "SELECT /*+ OPTIONS('scan.snapshot-id'='1') */ a FROM t": "/ must come right after the name of a table",
    "INSERT INTO /*+ OPTIONS('a'='b') */ t VALUES (1)": "INSERT: the hint .* has no effect",
    "INSERT INTO t BY NAME /*+ OPTIONS('a'='b') */ SELECT 1 AS a": "INSERT: the hint .* has no effect",
    "CREATE TABLE t /*+ OPTIONS('a'='b') */ AS SELECT 1 AS a": "CREATE TABLE: the hint .* has no effect",
    "CREATE TABLE t (a INT) AS": "expected SELECT, but the statement ends",
    "ALTER TABLE t ALTER COLUMN a TYPE BIGINT NOT NULL": "takes only a type",
    "ALTER TABLE t ALTER COLUMN a TYPE BIGINT COMMENT 'c', b FIRST": "takes only a type",
    "TRUNCATE TABLE t /*+ OPTIONS('branch'='b') */": "the hint .* has no effect here; remove it",
    "CREATE TABLE t LIKE s /*+ OPTIONS('a'='b') */": "the hint .* has no effect",
    "CREATE OR REPLACE TABLE IF NOT EXISTS t (a INT)": "cannot have IF NOT EXISTS",
    "DROP VIEW v": "DROP VIEW is not supported; use DROP TABLE.* Views and functions belong to the Spark session",
    "SHOW USER FUNCTIONS": "Views and functions belong to the Spark session",
    "DESCRIBE FUNCTION EXTENDED area": "DESCRIBE FUNCTION is not supported. Views and functions belong to the Spark",
    "DESC FORMATTED t PARTITION (dt = 1)": r"PARTITION is not supported; SELECT \* FROM `t\$partitions`",
    "ALTER TABLE t CREATE TAG x RETAIN 7 WEEKS": "expected DAYS, HOURS or MINUTES, found 'WEEKS'",
    "ALTER TABLE t CHANGE COLUMN a a INT": "ALTER TABLE CHANGE is not supported; use ALTER COLUMN",
    "ALTER TABLE t ALTER COLUMN a SET DEFAULT now()": r"DEFAULT needs a literal, .* found now\(\)",
    "ALTER TABLE t ADD COLUMN a INT DEFAULT 1": "added without DEFAULT",
    "CREATE TABLE t (a INT) WITH ('path'='/x')": "the option 'path' is not supported: the folder of a table is always",
    "SHOW PARTITIONS t PARTITION (dt)": "partition column 'dt' has no value",
    "SELECT * FROM t TIMESTAMP AS OF '2026-01-01' + INTERVAL '1' MONTH": "expected a whole number of DAY, HOUR",
    "ALTER TABLE t SWAP": "one of SET, RESET, .* follows the table's name, found 'SWAP'",
    "CALL compact('t')": r"procedures are in sys, as in CALL sys\.compact",
    "CALL sys.compact('t', partitions => 'x')": "named and positional arguments cannot be mixed",
    "CALL sys.compact(current_date())": r"CALL sys\.compact: expected a string in quotes, a number",
    "SELECT * FROM t VERSION AS OF x": "time travel: expected a snapshot's id or the name of a tag, found 'x'",
    "SELECT * FROM t TIMESTAMP AS OF 'yesterday'": "'yesterday' is no time",
    "SELECT 1 /*+ OPTIONS('a'='b') */": "must come right after the name of a table",
    "SELECT * FROM t /*+ BROADCAST(t) */": r"hint /\*\+ BROADCAST\(t\) \*/: expected OPTIONS",
    "SELECT * FROM a.b.c.d": "has more parts than catalog, database and table",
    "SELECT * FROM `t$x$y`": r"is no name of a table; write for example t, t\$files",
    "SELECT (1": r"Expecting \)",
    "SELECT": "SELECT needs columns",
    "SELECT * FROM": "something is missing, at 'FROM'",
    "SELECT 'a": "the text cannot be parsed",
    "SELECT * FROM t TIMESTAMP AS OF 1.5": "seconds since 1970, a whole number, found '1.5'",
    "SELECT * FROM t TIMESTAMP AS OF '2026-01-01' + INTERVAL '99999999999' DAY": "INTERVAL 99999999999 DAY is too long",
    "SELECT * FROM t TIMESTAMP AS OF '2026-01-01' + INTERVAL '999999999' DAY": "'2026-01-01' is no time",
    "ALTER TABLE t CREATE TAG x AS OF VERSION 1.5": "expected a snapshot's id, a whole number, found '1.5'",
    "CREATE TABLE t (a INT": r"expected , or \), but the statement ends",
    "CREATE TABLE t ()": r"expected a column or its type, found '\)'",
    "CREATE DATABASE d COMMENT 'x'": "COMMENT is not supported; a database has only a name$",
    "SELECT * FORM t": "the statement cannot be parsed, at 't'",
    "SELECT `a": "a name in backticks or a comment is not closed, after 'SELECT `'",
    "DELETE t WHERE a = 1": "FROM is missing",
    "MERGE INTO t USING s WHEN MATCHED THEN DELETE": "ON is missing",
    "UPDATE t SET a = 1, a = 2": "a column is set twice",
    "MERGE INTO t USING s ON t.a=s.a": "a WHEN clause is missing",
    "MERGE INTO t USING s ON t.a=s.a WHEN MATCHED THEN DELETE WHEN MATCHED THEN DELETE": "only the last may be without",
    "MERGE INTO t USING s ON t.a=s.a WHEN MATCHED THEN INSERT *": "WHEN MATCHED takes UPDATE or DELETE, not INSERT",
    "MERGE INTO t USING s ON t.a=s.a WHEN NOT MATCHED THEN DELETE": "WHEN NOT MATCHED takes INSERT, not DELETE",
    "MERGE INTO t USING s ON t.a=s.a WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *": "needs a source row",
    "MERGE INTO t USING s ON t.a=s.a WHEN NOT MATCHED THEN INSERT (a)": r"INSERT needs \*, or \(columns\) VALUES",
    "MERGE INTO t USING s ON t.a=s.a WHEN NOT MATCHED THEN INSERT (a, A) VALUES (1, 2)": "names a column twice",
    "MERGE INTO t USING s ON t.a=s.a WHEN MATCHED THEN DO NOTHING": "THEN DO NOTHING is not supported",
    "MERGE INTO t USING range(3) s ON t.a=s.id WHEN MATCHED THEN DELETE": "USING there must be a table, a view or",
    "MERGE WITH SCHEMA EVOLUTION INTO t USING s ON t.a=s.a WHEN MATCHED THEN DELETE": "ADD COLUMN first",
    "CALL sys.merge_into('T', '', 'CREATE VIEW v', 'v', 'T.a = v.a', '', 'b = 1')": "source_sqls is not supported",
    "CALL sys.merge_into(target_table => 'T', merge_condition => 'T.a = S.a')": "argument 'source_table' is missing",
    "CALL a.b.sys.compact('t')": "procedures are in sys",
    "SHOW FUNCTIONS": "SHOW FUNCTIONS is not supported; SHOW TABLES",
    "REFRESH FUNCTION f": "REFRESH: expected TABLE",
    "SELECT * FROM paimon_incremental_query('t', 1)": "takes a table, the beginning, which is left out, and the end",
    "SELECT * FROM paimon_incremental_to_auto_tag('t', 'a', 'b')": "takes a table and a tag",
    "SELECT * FROM paimon_incremental_query(t, 1, 2)": "expected the name of a table in quotes",
    "SELECT * FROM t ORDER BY k, paimon_incremental_query('t', 1, 2)": "must come after FROM",
    "TABLE s WHERE a = 1": r"TABLE s: WHERE cannot follow the name of the table; write SELECT \* FROM s WHERE \.\.\.",
    "INSERT INTO t TABLE d.s VERSION AS OF 1": r"write SELECT \* FROM d\.s VERSION \.\.\.",
    "INSERT INTO t BY NAME (a) SELECT 1 AS a": r"BY NAME takes no list of columns; .*, found '\('",
    "TRUNCATE TABLE t PARTITION (dt)": "partition column 'dt' has no value",
    "SHOW TABLES EXTRA": "SHOW TABLES: not supported here, found 'EXTRA'",
}


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "INSERT INTO t BY NAME {}",
        "INSERT OVERWRITE t PARTITION (dt = 'x') BY NAME {}",
        "INSERT INTO t (a, b) {}",
        "INSERT INTO TABLE t BY NAME ({})",
        "CREATE TABLE t AS {}",
        "{} UNION ALL {} ORDER BY a LIMIT 3",
        "SELECT * FROM ({}) AS q, ({} INTERSECT {})",
        "WITH q AS ({}), r AS (SELECT 1) {}",
        "DELETE FROM t WHERE a IN ({}) AND EXISTS ({})",
        "MERGE INTO t USING ({}) q ON t.a = q.a WHEN NOT MATCHED THEN INSERT *",
    ],
)
@pytest.mark.parametrize("name", ["s", "`d`.`s s`", "s /*+ OPTIONS('scan.snapshot-id' = '1') */"])
def test_the_query_table_means_all_columns_and_rows_of_the_table(text: str, name: str) -> None:
    selected = text.replace("{}", f"SELECT * FROM {name}")
    assert parse_statement(text.replace("{}", f"TABLE {name}")) == parse_statement(selected)


def test_a_column_an_alias_and_an_argument_may_be_called_table() -> None:
    for text in (
        "SELECT table, count(table) AS table FROM table table",
        "SELECT DISTINCT table x FROM (SELECT 1) table JOIN u",
        "SELECT a, CAST(table AS INT) FROM t WHERE (table IS NULL) OR ((table = 1))",
    ):
        found = parse_statement(text)
        assert isinstance(found, Query) and found.text == text
    inserted = parse_statement("INSERT INTO t (table, a) VALUES (1, 2)")
    assert isinstance(inserted, Insert) and inserted.columns == ("table", "a")


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_supported_is_refused_by_name(text: str) -> None:
    with pytest.raises(OptionError, match=REFUSED[text]):
        parse_statement(text)


@pytest.mark.parametrize(
    ("text", "for_spark"),
    [
        ("SELECT 'it''s', '' '', 'x' 'y', '''' FROM t", r"SELECT 'it\'s', '' '', 'x' 'y', '\'' FROM t"),
        (r"SELECT 'a\'''b', 'c\\''d', DATE '2024-01-01'", r"SELECT 'a\'\'b', 'c\\\'d', DATE '2024-01-01'"),
        ("SELECT `a''b`, \"it's\", \"it''s\" -- 'c''d'", "SELECT `a''b`, \"it's\", \"it''s\" -- 'c''d'"),
    ],
)
def test_a_quote_that_is_written_twice_is_one_for_spark_too(text: str, for_spark: str) -> None:
    assert as_spark_reads(text) == for_spark
