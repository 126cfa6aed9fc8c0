"""A route of a job of several tables: which records it takes, and the table to which they go."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from bucketline.conf.errors import OptionError
from bucketline.conf.option import did_you_mean

PATTERN = "regex:"
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PARTS = ("database", "schema", "table")
_NOT_IN_NAMES = re.compile(r"[/\\.\x00-\x1f]")


@dataclass(frozen=True, slots=True)
class SourceName:
    """The name of a source table, as a record gives it.

    Canal, Maxwell and MySQL give a database and a table; Postgres and other databases give a schema too.
    """

    table: str
    schema: str | None = None
    database: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """Returns the spellings of the name that a route may use: first `schema.table` or `database.table`, and then
        the name with all its parts.
        """
        outer = self.schema or self.database
        short = f"{outer}.{self.table}" if outer else self.table
        full = ".".join(part for part in (self.database, self.schema, self.table) if part)
        return (short,) if short == full else (short, full)


@dataclass(frozen=True, slots=True)
class Names:
    """An exact name, or a pattern for the whole name, written after `regex:`."""

    text: str

    @property
    def is_pattern(self) -> bool:
        return self.text.startswith(PATTERN)

    @property
    def group_count(self) -> int:
        return re.compile(self.text.removeprefix(PATTERN)).groups if self.is_pattern else 0

    def groups(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        """Returns the groups of the pattern for the first name that matches; None if no name matches.

        A group that does not take part in the match is an empty string.
        """
        if not self.is_pattern:
            return () if self.text in names else None
        for name in names:
            matched = re.fullmatch(self.text.removeprefix(PATTERN), name)
            if matched is not None:
                return tuple(matched.groups(default=""))
        return None


@dataclass(frozen=True, slots=True)
class Route:
    """A rule that says to which table the records of some source tables or of a topic go.

    `number` is the index of the route in its job, from 0. `target` is the path or name of a table. It may contain the
    placeholders `{database}`, `{schema}` and `{table}`, and placeholders for groups of the pattern, such as `{1}`.
    """

    number: int
    names: Names
    of_topic: bool
    target: str

    @property
    def asks_names(self) -> bool:
        """Returns True if the route depends on the source table that a record names."""
        return not self.of_topic or any(part in _PARTS for part in placeholders(self.target))

    def takes(self, name: SourceName | None, topic: str | None) -> tuple[str, ...] | None:
        """Returns the groups of the route's pattern if the route takes the records of a source table (`name`) from a
        topic. Returns None if the route does not take these records.
        """
        if self.of_topic:
            if topic is None or (name is None and self.asks_names):
                return None
            return self.names.groups((topic,))
        return None if name is None else self.names.groups(name.texts)

    def table_of(self, name: SourceName | None, groups: tuple[str, ...]) -> str:
        """Returns the path or name of the table for records of a source table. `groups` are the texts that the groups
        of the route's pattern have matched; in the route's target, `{1}` stands for the first of these texts.

        Raises OptionError if a part of the source name is missing, or has characters that a table's name must not have.
        """
        parts = {str(number): text for number, text in enumerate(groups, 1)}
        if name is not None:
            parts |= {"table": name.table, "schema": name.schema or "", "database": name.database or ""}
        for placeholder in placeholders(self.target):
            self._check(placeholder, parts.get(placeholder, ""), name)
        return _PLACEHOLDER.sub(lambda found: parts[found[1]], self.target)

    def _check(self, placeholder: str, text: str, name: SourceName | None) -> None:
        source = "a record" if name is None else f"table {name.texts[-1]!r} of the source"
        if not text:
            self._refuse(f"{source} has no value for {{{placeholder}}}")
        if _NOT_IN_NAMES.search(text):
            self._refuse(
                f"{source} gives {text!r} for {{{placeholder}}}, but a table's name must not get '/' or '.' from a "
                "source name"
            )

    def _refuse(self, why: str) -> NoReturn:
        raise OptionError(
            f"tables[{self.number}].table is {self.target!r}, but {why}; add a route for this source table before "
            "this one, and write the table's name in it",
            key="table",
            route=self.number,
        )


def placeholders(target: str) -> tuple[str, ...]:
    """Returns the placeholders (the names in braces) in the target of a route."""
    return tuple(_PLACEHOLDER.findall(target))


def check_target(target: str, names: Names, key: str) -> None:
    """Raises OptionError if the target of a route has a placeholder that is unknown, or a group that the pattern in
    `names` does not have. `key` names the setting in errors.
    """
    known = (*_PARTS, *(str(n) for n in range(1, names.group_count + 1)))
    for placeholder in placeholders(target):
        if placeholder not in known:
            more = "" if placeholder.isdigit() else did_you_mean(placeholder, known)
            raise OptionError(
                f"{key}: unknown placeholder {{{placeholder}}}; known are "
                f"{', '.join(f'{{{one}}}' for one in known)}{more}",
                key=key,
            )
    if "{" in _PLACEHOLDER.sub("", target) or "}" in _PLACEHOLDER.sub("", target):
        raise OptionError(f"{key}: {target!r} has an opening brace without a closing brace, or the reverse", key=key)


def case_variant(tables: Mapping[str, object] | set[str], table: str) -> str | None:
    """Returns a known table whose name differs from `table` only in upper and lower case; None if there is none.

    Some storages and catalogs take two names for the same if only upper and lower case differ.
    """
    folded = table.casefold()
    return next((known for known in sorted(tables) if known != table and known.casefold() == folded), None)
