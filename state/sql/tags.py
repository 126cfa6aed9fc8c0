"""Parses the clauses of ALTER TABLE for tags, in the syntax of Paimon's extensions of Spark."""

from bucketline.state.sql.statement import CreateTag, DeleteTags, RenameTag, TableReference
from bucketline.state.sql.words import Words

_UNITS = ("DAYS", "HOURS", "MINUTES", "DAY", "HOUR", "MINUTE")


def read_tag(words: Words, name: TableReference) -> CreateTag | DeleteTags | RenameTag | None:
    """Parses `CREATE TAG x AS OF VERSION 1 RETAIN 7 DAYS`, `REPLACE TAG x ...`, `RENAME TAG x TO y` or `DELETE TAG x`
    after the table's name. Returns None for any other clause.
    """
    if words.take("CREATE", "TAG"):
        return _created(words, name)
    if words.take("CREATE", "OR", "REPLACE", "TAG"):
        return _created(words, name, replaces=True)
    if words.take("REPLACE", "TAG"):
        return _created(words, name, replaces=True, created=False)
    if words.take("RENAME", "TAG"):
        tag = words.name("the name of a tag")
        words.expect("TO")
        to = words.name("the new name of the tag")
        words.end()
        return RenameTag(name, tag, to)
    if words.take("DELETE", "TAG"):
        missing_ok = words.take("IF", "EXISTS")
        tags = tuple(tag.strip() for tag in words.name("the name of a tag").split(","))
        words.end()
        return DeleteTags(name, tags, missing_ok)
    return None


def _created(words: Words, name: TableReference, *, replaces: bool = False, created: bool = True) -> CreateTag:
    exist_ok = not replaces and words.take("IF", "NOT", "EXISTS")
    tag, snapshot, retained = words.name("the name of a tag"), None, None
    if words.take("AS", "OF", "VERSION"):
        snapshot = words.whole_number("a snapshot's id")
    if words.take("RETAIN"):
        count = words.whole_number("a number of days, hours or minutes")
        unit = next((u for u in _UNITS if words.take(u)), None)
        if unit is None:
            raise words.wrong("expected DAYS, HOURS or MINUTES")
        retained = f"{count} {unit[0].lower() if unit[0] != 'M' else 'min'}"
    words.end()
    return CreateTag(name, tag, exist_ok, snapshot, retained, replaces, created)
