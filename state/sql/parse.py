"""Parses a text with SQL statements, which are separated by semicolons."""

from collections.abc import Callable

from bucketline.conf.option import did_you_mean
from bucketline.state.sql.alterations import read_alter, read_comment
from bucketline.state.sql.calls import read_call
from bucketline.state.sql.definitions import (
    read_create,
    read_describe,
    read_drop,
    read_refresh,
    read_replace,
    read_reset,
    read_set,
    read_show,
    read_use,
)
from bucketline.state.sql.dialect import refused
from bucketline.state.sql.merges import read_merge
from bucketline.state.sql.queries import read_change, read_insert, read_query, read_truncate
from bucketline.state.sql.statement import Statement
from bucketline.state.sql.words import Words, split_script


def parse_script(text: str) -> list[tuple[str, Statement]]:
    """Returns the text and the parsed form of each statement. Raises OptionError, which names the statement, if a
    statement cannot be parsed or is not supported.
    """
    return [(part.strip(), parse_statement(part)) for part in split_script(text)]


def parse_statement(text: str) -> Statement:
    """Parses a text that has one statement. Raises the errors of `parse_script`."""
    words = Words(text)
    verb = words.peek()
    words.verb = verb
    if verb in _READ_WORDS:
        return _READ_WORDS[verb](words)
    if verb in ("SELECT", "WITH", "VALUES", "(", "FROM", "TABLE"):
        return read_query(text)
    if verb in ("UPDATE", "DELETE"):
        return read_change(text)
    if verb == "MERGE":
        return read_merge(text)
    remedy = _REMEDIES.get(verb) or f"{did_you_mean(verb, _VERBS) or f'; supported are {_LIST}'}"
    raise refused(f"{verb or text.strip()[:20]!r} is not supported{remedy}", statement=verb)


_READ_WORDS: dict[str, Callable[[Words], Statement]] = {
    "CREATE": read_create,
    "REPLACE": read_replace,
    "DROP": read_drop,
    "ALTER": read_alter,
    "USE": read_use,
    "REFRESH": read_refresh,
    "SHOW": read_show,
    "DESCRIBE": read_describe,
    "DESC": read_describe,
    "SET": read_set,
    "RESET": read_reset,
    "CALL": read_call,
    "INSERT": read_insert,
    "TRUNCATE": read_truncate,
    "COMMENT": read_comment,
}
_VERBS = ("SELECT", "UPDATE", "DELETE", "MERGE", *_READ_WORDS)
_LIST = ", ".join(_VERBS)
_REMEDIES = {
    "EXPLAIN": "; use the DataFrame: bl.sql(spark, 'SELECT ...').explain()",
    "ANALYZE": "; statistics of columns are not collected, because each file has its own statistics",
    "MSCK": "; partitions are found in the table's snapshots",
    "BEGIN": "; run the statements of a statement set one by one",
    "EXECUTE": "; run the statements of a statement set one by one",
    "ADD": "; start the program with the jars that it needs",
    "LOAD": "; use INSERT INTO ... SELECT",
    "COPY": "; use INSERT INTO ... SELECT",
}
