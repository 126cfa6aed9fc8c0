"""Parses CREATE, DROP, USE, SHOW, DESCRIBE, SET and RESET.

In the spelling of Flink and of Spark, types have the meaning that they have in Paimon: TIMESTAMP has no time zone, and
TIMESTAMP_LTZ is an instant. Source: Flink SQL and Spark SQL with Paimon 2.0.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from bucketline.conf.statement_options import names_place
from bucketline.state.sql.dialect import refused
from bucketline.state.sql.queries import read_partition, read_query
from bucketline.state.sql.statement import (
    CreateCatalog,
    CreateDatabase,
    CreateTable,
    Describe,
    Drop,
    Kind,
    Refresh,
    Reset,
    Set,
    Show,
    Statement,
    Use,
)
from bucketline.state.sql.words import Words, database_name, table_name

PLACE_OF_A_TABLE = "the folder of a table is always <warehouse>/<database>.db/<table>"
_PROVIDERS = ("paimon", "bucketline")

_OF_SPARK = "Views and functions belong to the Spark session: spark.sql(...)"


def read_create(words: Words) -> Statement:
    """Parses `CREATE TABLE`, `CREATE DATABASE` or `CREATE CATALOG`."""
    words.expect("CREATE")
    if words.take("CATALOG"):
        words.verb = "CREATE CATALOG"
        exist_ok = words.take("IF", "NOT", "EXISTS")
        name = words.name("the name of a catalog")
        words.expect("WITH")
        options = words.options()
        words.end()
        return CreateCatalog(name, options, exist_ok)
    if words.take("DATABASE") or words.take("SCHEMA") or words.take("NAMESPACE"):
        return _create_database(words)
    if words.take("TABLE"):
        return _create_table(words)
    if words.take("OR", "REPLACE", "TABLE"):
        return _replaced(words, created=True)
    target = " ".join(filter(None, (words.peek(0), words.peek(1), words.peek(2)))) or "?"
    raise refused(
        f"CREATE {target} is not supported; use CREATE TABLE, CREATE DATABASE or CREATE CATALOG. {_OF_SPARK}",
        statement="CREATE",
    )


def read_replace(words: Words) -> CreateTable:
    """Parses `REPLACE TABLE t (...)` or `REPLACE TABLE t AS SELECT ...`. The table must exist."""
    words.expect("REPLACE")
    words.expect("TABLE")
    return _replaced(words, created=False)


def _replaced(words: Words, *, created: bool) -> CreateTable:
    if words.sees("IF", "NOT", "EXISTS"):
        raise refused(
            "CREATE OR REPLACE TABLE cannot have IF NOT EXISTS; remove one of the two", statement="REPLACE TABLE"
        )
    return replace(_create_table(words), replaces=True, created=created)


def _create_database(words: Words) -> CreateDatabase:
    words.verb = "CREATE DATABASE"
    exist_ok = words.take("IF", "NOT", "EXISTS")
    catalog, name = database_name(words.path("the name of a database"))
    if not words.is_done:
        clause = words.peek()
        raise refused(f"CREATE DATABASE: {clause} is not supported; a database has only a name", statement=words.verb)
    words.end()
    return CreateDatabase(name, catalog, exist_ok)


def _create_table(words: Words) -> CreateTable:
    words.verb = "CREATE TABLE"
    exist_ok = words.take("IF", "NOT", "EXISTS")
    clauses: dict[str, object] = {}
    name = words.table()
    if name.system is not None or name.branch is not None:
        raise refused(
            f"CREATE TABLE {name}: a name with $ means a system table or a branch; use CALL sys.create_branch for a "
            "branch"
        )
    columns: list[str] = []
    keys: tuple[str, ...] = ()
    if words.sees("("):
        columns, keys = _columns(words)
    while not words.is_done and not words.sees("AS") and words.peek() != "SELECT":
        if words.sees("WITH") and words.peek(1) != "(":
            break  # A query that begins with WITH.
        clause, value = _clause(words, columns)
        if clause in clauses:
            raise refused(f"CREATE TABLE: {clause} is given twice", statement=words.verb)
        clauses[clause] = value
    if words.take("AS") and words.is_done:
        raise words.wrong("expected SELECT")
    query = None
    if words.is_done:
        words.end()
    else:
        query = read_query(words.query())
    like = clauses.get("LIKE")
    if (columns != []) + (query is not None) + (like is not None) != 1:
        raise refused(
            f"CREATE TABLE {name}: the columns come from a list (col TYPE, ...), from LIKE, or from AS SELECT; give "
            "one of them. With AS SELECT the keys are the options 'primary-key' and 'partition'",
            statement=words.verb,
        )
    options = clauses.get("WITH", {})
    if isinstance(options, dict) and names_place(options):
        raise refused(f"CREATE TABLE: the option 'path' is not supported: {PLACE_OF_A_TABLE}", option="path")
    comment, partitions = clauses.get("COMMENT"), clauses.get("PARTITIONED BY", ())
    source, copied = like if isinstance(like, tuple) else (None, True)
    assert isinstance(options, dict) and isinstance(partitions, tuple)
    return CreateTable(
        name,
        ", ".join(columns) or None,
        keys,
        partitions,
        options,
        None if comment is None else str(comment),
        exist_ok,
        source,
        copied,
        query,
    )


def _columns(words: Words) -> tuple[list[str], tuple[str, ...]]:
    """Parses the list of columns. Returns the text of each column, and the columns of the primary key."""
    columns: list[str] = []
    keys: tuple[str, ...] = ()
    words.expect("(")
    while True:
        if words.sees("CONSTRAINT") and words.peek(2) == "PRIMARY":
            words.at += 2
        if words.sees("PRIMARY", "KEY", "("):
            if keys:
                raise refused("CREATE TABLE: PRIMARY KEY is given twice", statement=words.verb)
            words.at += 2
            keys = words.names("a column of the key")
            words.take("NOT", "ENFORCED")
        else:
            _refuse_columns(words)
            key_column = _column(words, columns)
            if key_column is not None:
                if keys:
                    raise refused("CREATE TABLE: PRIMARY KEY is given twice", statement=words.verb)
                keys = (key_column,)
        if words.take(")"):
            return columns, keys
        words.expect_comma()


def _column(words: Words, columns: list[str]) -> str | None:
    """Parses a column and appends its text to `columns`. Returns the column's name if it is declared as the primary
    key, and None otherwise.
    """
    name = words.tokens[words.at].text if words.comes_name() else None
    columns.append(words.source(*words.clause("PRIMARY")))
    if not words.take("PRIMARY", "KEY"):
        return None
    words.take("NOT", "ENFORCED")
    if words.sees("COMMENT"):
        columns[-1] += f" {words.source(*words.clause())}"
    return str(name)


def _refuse_columns(words: Words) -> None:
    if words.sees("WATERMARK", "FOR"):
        raise refused("CREATE TABLE: WATERMARK is only for streams of Flink; remove it", statement=words.verb)
    if words.sees("UNIQUE") or words.sees("FOREIGN", "KEY") or words.sees("CHECK", "("):
        raise refused(f"CREATE TABLE: {words.peek()} is not supported; use PRIMARY KEY", statement=words.verb)
    ahead = words.peek(1)
    if ahead in ("AS", "METADATA"):
        raise refused(
            f"CREATE TABLE: computed and metadata columns ({words.peek()} {ahead} ...) are not supported; compute them "
            "where rows are written",
            statement=words.verb,
        )


def _clause(words: Words, columns: list[str]) -> tuple[str, object]:
    """Parses a clause of CREATE TABLE that follows the list of columns, for example COMMENT. Returns the name and the
    value of the clause. If PARTITIONED BY declares new columns, they are appended to `columns`.
    """
    if words.take("COMMENT"):
        return "COMMENT", words.string("a comment")
    if words.take("WITH") or words.take("TBLPROPERTIES") or words.take("OPTIONS"):
        return "WITH", words.options()
    if words.take("PARTITIONED", "BY"):
        return "PARTITIONED BY", _partition_columns(words, columns)
    if words.take("USING"):
        provider = words.name("a format")
        if provider.lower() not in _PROVIDERS:
            raise refused(f"CREATE TABLE: USING {provider} is not supported; remove it, or write USING paimon")
        return "USING", provider
    if words.take("LIKE"):
        source, copied = words.table(), True
        if words.take("("):
            if not (words.take("EXCLUDING", "OPTIONS") or words.take("EXCLUDING", "ALL")):
                words.expect("INCLUDING")
                if not words.take("ALL"):
                    words.expect("OPTIONS")
            else:
                copied = False
            words.expect(")")
        return "LIKE", (source, copied)
    remedies: Mapping[str, str] = {
        "LOCATION": PLACE_OF_A_TABLE,
        "CLUSTERED": "use the options 'bucket' and 'bucket-key'",
        "DISTRIBUTED": "use the options 'bucket' and 'bucket-key'",
        "ROW": "use the option 'file.format'",
        "STORED": "use the option 'file.format'",
    }
    remedy = remedies.get(words.peek())
    if remedy is None:
        raise words.wrong("not supported here")
    raise refused(f"CREATE TABLE: {words.peek()} is not supported: {remedy}", statement=words.verb)


def _partition_columns(words: Words, columns: list[str]) -> tuple[str, ...]:
    """Parses the partition columns: `(dt, hr)`, or `(dt STRING, hr INT)`, which also adds these columns to the
    table.
    """
    words.expect("(")
    names = []
    while True:
        names.append(str(words.name("a partition column")))
        if not words.sees(",") and not words.sees(")"):
            words.at -= 1
            columns.append(words.source(*words.clause()))
        if words.take(")"):
            return tuple(names)
        words.expect_comma()


def read_drop(words: Words) -> Drop:
    """Parses `DROP TABLE`, `DROP DATABASE` or `DROP CATALOG`."""
    words.expect("DROP")
    kind = _kind(words, "DROP")
    missing_ok = words.take("IF", "EXISTS")
    path = words.path(f"the name of a {kind.value.lower()}")
    cascade = words.take("CASCADE")
    if not cascade:
        words.take("RESTRICT")
    if kind is Kind.TABLE:
        words.take("PURGE")
    words.end()
    if kind is Kind.TABLE:
        table_name(path)
    return Drop(kind, path, missing_ok, cascade)


def _kind(words: Words, verb: str) -> Kind:
    for word, kind in (
        ("TABLE", Kind.TABLE),
        ("DATABASE", Kind.DATABASE),
        ("SCHEMA", Kind.DATABASE),
        ("NAMESPACE", Kind.DATABASE),
        ("CATALOG", Kind.CATALOG),
    ):
        if words.take(word):
            words.verb = f"{verb} {kind.value}"
            return kind
    raise refused(
        f"{verb} {words.peek()} is not supported; use {verb} TABLE, {verb} DATABASE or {verb} CATALOG. {_OF_SPARK}",
        statement=verb,
    )


def read_use(words: Words) -> Use:
    """Parses `USE db`, `USE DATABASE db`, `USE CATALOG c` or `USE c.db`."""
    words.expect("USE")
    words.verb = "USE"
    kind = Kind.DATABASE
    if words.peek(1):
        if words.take("CATALOG"):
            kind = Kind.CATALOG
        elif words.sees("DATABASE") or words.sees("SCHEMA") or words.sees("NAMESPACE"):
            words.at += 1
    path = words.path("the name of a database")
    words.end()
    if len(path) > (2 if kind is Kind.DATABASE else 1):
        raise refused(f"USE {'.'.join(path)}: expected a database, or catalog.database", statement="USE")
    return Use(kind, path)


def read_show(words: Words) -> Show:
    """Parses `SHOW TABLES` and the other SHOW statements."""
    words.expect("SHOW")
    words.verb = "SHOW"
    for written, subject in _SHOWN:
        if words.take(*written):
            words.verb = f"SHOW {' '.join(written)}"
            return _NAMED[subject](words, subject) if subject in _NAMED else _show_names(words, subject)
    raise refused(
        f"SHOW {words.peek()} is not supported; SHOW {', '.join(' '.join(w) for w, _ in _SHOWN[:-3])} are. "
        f"For snapshots, tags and branches: SELECT * FROM `t$snapshots`, `t$tags`, `t$branches`. {_OF_SPARK}",
        statement="SHOW",
    )


def _show_names(words: Words, subject: str) -> Show:
    path: tuple[str, ...] = ()
    if subject in ("TABLES", "VIEWS", "DATABASES") and (words.take("IN") or words.take("FROM")):
        path = words.path("the name of a catalog" if subject == "DATABASES" else "the name of a database")
        if subject == "DATABASES" and len(path) > 1:
            raise refused(f"SHOW DATABASES: {'.'.join(path)!r} is no catalog", statement="SHOW DATABASES")
    like = None
    if words.take("LIKE") or words.comes_string():
        like = words.string("a pattern")
    words.end()
    return Show(subject, path, like)


def _show_of_table(words: Words, subject: str) -> Show:
    if not words.take("IN"):
        words.take("FROM")
    path = words.path("the name of a table")
    partition: Mapping[str, str | None] | None = None
    key = None
    if subject == "COLUMNS" and (words.take("IN") or words.take("FROM")):
        path = (*words.path("the name of a database"), path[-1])
    if subject == "PARTITIONS" and words.take("PARTITION"):
        partition, dynamic = read_partition(words)
        if dynamic:
            raise refused(
                f"SHOW PARTITIONS: partition column {dynamic[0]!r} has no value; write {dynamic[0]} = value",
                statement="SHOW PARTITIONS",
            )
    if subject == "OPTIONS" and words.take("("):
        key = words.option_key()
        words.expect(")")
    words.end()
    return Show(subject, path, None, partition, key)


_SHOWN: tuple[tuple[tuple[str, ...], str], ...] = (
    (("TABLES",), "TABLES"),
    (("VIEWS",), "VIEWS"),
    (("DATABASES",), "DATABASES"),
    (("CATALOGS",), "CATALOGS"),
    (("COLUMNS",), "COLUMNS"),
    (("PARTITIONS",), "PARTITIONS"),
    (("TBLPROPERTIES",), "OPTIONS"),
    (("CREATE", "TABLE"), "CREATE TABLE"),
    (("TAGS",), "TAGS"),
    (("CURRENT", "DATABASE"), "CURRENT DATABASE"),
    (("CURRENT", "CATALOG"), "CURRENT CATALOG"),
    (("CURRENT", "NAMESPACE"), "CURRENT DATABASE"),
    (("SCHEMAS",), "DATABASES"),
    (("NAMESPACES",), "DATABASES"),
)
_NAMED: Mapping[str, Callable[[Words, str], Show]] = {
    subject: _show_of_table for subject in ("COLUMNS", "PARTITIONS", "OPTIONS", "CREATE TABLE", "TAGS")
}


def read_describe(words: Words) -> Describe:
    """Parses `DESCRIBE t`, `DESC EXTENDED t` or `DESCRIBE TABLE t`."""
    words.at += 1
    words.verb = "DESCRIBE"
    if words.peek() == "FUNCTION" and words.peek(1):
        raise refused(f"DESCRIBE FUNCTION is not supported. {_OF_SPARK}", statement="DESCRIBE")
    if words.peek(1):
        words.take("TABLE")
    if words.peek(1) and not words.take("EXTENDED"):
        words.take("FORMATTED")
    name = words.table()
    if words.sees("PARTITION"):
        raise refused(
            "DESCRIBE: PARTITION is not supported; SELECT * FROM `t$partitions` says more", statement="DESCRIBE"
        )
    words.end()
    return Describe(name)


def read_refresh(words: Words) -> Refresh:
    """Parses `REFRESH TABLE t`."""
    words.expect("REFRESH")
    words.verb = "REFRESH"
    words.expect("TABLE")
    name = words.table()
    words.end()
    return Refresh(name)


def read_set(words: Words) -> Set:
    """Parses `SET`, `SET key` or `SET key = value`, with or without quotes."""
    words.expect("SET")
    words.verb = "SET"
    if words.is_done:
        return Set(None, None)
    key = words.option_key()
    if words.is_done:
        return Set(key, None)
    words.expect("=")
    if words.comes_string():
        value = words.string("a value")
        words.end()
        return Set(key, value)
    value = words.rest().strip()
    if not value:
        raise refused(f"SET {key}: a value is missing", statement="SET")
    return Set(key, value)


def read_reset(words: Words) -> Reset:
    """Parses `RESET` or `RESET key`."""
    words.expect("RESET")
    words.verb = "RESET"
    if words.is_done:
        return Reset(None)
    key = words.option_key()
    words.end()
    return Reset(key)
