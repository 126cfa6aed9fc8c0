"""The state that lasts between the statements of a user: catalogs, the current catalog and database, and options.

Source: Paimon 2.0, dynamic options: `spark.paimon.<key>`, `spark.paimon.<catalog>.<db>.<table>.<key>`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bucketline.conf.option import did_you_mean
from bucketline.conf.sink_options import refuse_unknown_options
from bucketline.conf.table.other_options import has_no_effect
from bucketline.conf.table.read_options import BRANCH, INCREMENTAL_BETWEEN_SCAN_MODE, VERSIONS, is_read_option
from bucketline.state.format.table_name import DEFAULT_DATABASE
from bucketline.state.sql.dialect import refused
from bucketline.state.sql.statement import Relation, TableReference
from bucketline.state.sql.table_functions import BETWEEN
from bucketline.state.store.sql.between import RANGE_KEYS, Between, Differing, changed_between
from bucketline.state.store.system.tables import shows_snapshot
from bucketline.state.store.table.table import Table, handle_of, open_table
from bucketline.state.store.warehouse.catalog import Catalog

DEFAULT_CATALOG = "paimon"
_VERSION_KEYS = frozenset(option.key for option in VERSIONS)
_PREFIXES = ("spark.paimon.", "paimon.")
OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"
"""The option of Spark that says whether INSERT OVERWRITE without a partition replaces the whole table (static), or only
partitions that get rows (dynamic).
"""

_WITHOUT_EFFECT = {
    "execution.runtime-mode": ("batch",),
    "table.dml-sync": ("true",),
    OVERWRITE_MODE: ("static", "dynamic"),
    "sql-client.execution.result-mode": ("tableau", "table"),
}
"""Settings of Flink and Spark that users' statements contain, with the values that are accepted because they change
nothing here.
"""


@dataclass(slots=True)
class SqlSession:
    """The state of one user's session. Threads must not share a session."""

    catalogs: dict[str, Catalog] = field(default_factory=dict)
    catalog: str | None = None
    database: str = DEFAULT_DATABASE
    options: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def at(catalog: Catalog | None) -> "SqlSession":
        """Returns the state of a new session. `catalog`, if it is not None, becomes the current catalog, with the name
        `paimon`.
        """
        return SqlSession() if catalog is None else SqlSession({DEFAULT_CATALOG: catalog}, DEFAULT_CATALOG)

    def use_catalog(self, name: str) -> None:
        """Changes the current catalog. Raises OptionError for a catalog that was not created."""
        self.catalog_of(name)
        self.catalog, self.database = name, DEFAULT_DATABASE

    def catalog_of(self, name: str | None) -> Catalog:
        """Returns the catalog with this name; if `name` is None, the current catalog. Raises OptionError if there is
        no such catalog.
        """
        wanted = self.catalog if name is None else name
        if wanted is None:
            raise refused(
                "no warehouse is known: pass warehouse=..., or CREATE CATALOG c WITH ('warehouse' = '...') and USE "
                "CATALOG c; a table can also be named by its path in backticks"
            )
        if wanted not in self.catalogs:
            raise refused(f"there is no catalog '{wanted}'{did_you_mean(wanted, self.catalogs)}", catalog=wanted)
        return self.catalogs[wanted]

    def place(self, name: TableReference) -> tuple[Catalog, str]:
        """Returns the catalog of a table, and the table's name in the catalog: `database.table`, or
        `database.table$branch_b`.
        """
        database = self.database if name.database is None else name.database
        suffix = "" if name.branch is None else f"$branch_{name.branch}"
        return self.catalog_of(name.catalog), f"{database}.{name.table}{suffix}"

    def table(self, name: TableReference, hints: Mapping[str, str] | None = None, *, writes: bool = False) -> Table:
        """Opens a table with the options that the session has for the table, and with the options of the statement
        (`hints`). Returns the table.

        With `writes`, options of the session that choose what is read are ignored. Raises OptionError for a hint that
        has no effect, and, with `writes`, for a system table.
        """
        if writes:
            refuse_system_table(name)
        lasting = {k: v for k, v in self.options_for(name).items() if k not in RANGE_KEYS}
        if name.system is not None and not shows_snapshot(name.system):
            lasting = {k: v for k, v in lasting.items() if k not in _VERSION_KEYS}
        options = lasting | dict(hints or {})
        refuse_unknown_options(options)
        reading = {k: v for k, v in options.items() if is_read_option(k)}
        for key in hints or ():
            if (key in reading) == writes or key in RANGE_KEYS or has_no_effect(key):
                action = "writing" if writes else "reading"
                raise refused(f"the hint '{key}' has no effect on {action} {name}; leave the hint out", option=key)
        writing = {k: v for k, v in options.items() if k not in reading}
        if writes:
            reading = {k: v for k, v in reading.items() if k == BRANCH.key}
        if is_path(name):
            branch = {} if name.branch is None else {BRANCH.key: name.branch}
            table = open_table(name.table, options={**reading, **branch})
        else:
            catalog, full = self.place(name)
            table = catalog.table(full, options=reading)
        handle = handle_of(table)
        return Table(replace(handle, write_options={**handle.write_options, **writing}))

    def queried(self, relation: Relation) -> tuple[Table, Between | Differing | None]:
        """Opens the table of a query. Returns the table, and either the range of snapshots whose changes the query
        reads, or the tags that the query compares. The second result is None if the query reads the rows of one
        snapshot. Raises the errors of `table`.
        """
        options = {**self.options_for(relation.name), **relation.options}
        hints = {k: v for k, v in relation.options.items() if k not in RANGE_KEYS}
        table = self.table(relation.name, hints)
        between = changed_between(handle_of(table), options, relation.name.system)
        mode = INCREMENTAL_BETWEEN_SCAN_MODE.key
        if not isinstance(between, Between) and mode in hints:
            what = (
                f"without '{BETWEEN}'; set both or none"
                if between is None
                else "on a comparison of two tags; remove the hint"
            )
            raise refused(f"the hint '{mode}' has no effect {what}", option=mode)
        return table, between

    def options_for(self, name: TableReference) -> dict[str, str]:
        """Returns the session's options for this table: the options for all tables, overridden by the options that name
        the table.
        """
        shared, own = {}, {}
        place = (name.catalog or self.catalog or DEFAULT_CATALOG, name.database or self.database, name.table)
        for key, value in self.options.items():
            rest = next((key.removeprefix(p) for p in _PREFIXES if key.startswith(p)), None)
            if rest is None:
                continue
            parts = rest.split(".", 3)
            if len(parts) == 4 and all(part in ("*", of) for part, of in zip(parts, place, strict=False)):
                own[parts[3]] = value
            elif not _is_of_a_table(parts, self.catalogs):
                shared[rest] = value
        return {**shared, **own}

    def set(self, key: str, value: str) -> None:
        """Sets an option of the session. Raises OptionError for an option that would have no effect."""
        rest = next((key.removeprefix(p) for p in _PREFIXES if key.startswith(p)), None)
        if rest is None:
            if value.strip().lower() not in _WITHOUT_EFFECT.get(key, ()):
                accepted = ", ".join(f"{k} = {v[0]}" for k, v in _WITHOUT_EFFECT.items())
                raise refused(
                    f"SET {key} = {value} is not supported, because it would have no effect. Set options of tables "
                    f"as spark.paimon.<option>. Other options that are accepted: {accepted}",
                    option=key,
                )
        else:
            parts = rest.split(".", 3)
            of_table = len(parts) == 4 and _is_of_a_table(parts, self.catalogs)
            option = parts[3] if of_table else rest
            refuse_unknown_options({option: value})
            if has_no_effect(option) and option not in RANGE_KEYS:
                raise refused(f"SET {key}: '{option}' has no effect here: {has_no_effect(option)}", option=option)
        self.options[key] = value

    def reset(self, key: str | None) -> None:
        """Removes the setting of an option; if `key` is None, of all options."""
        if key is None:
            self.options.clear()
        else:
            self.options.pop(key, None)


def refuse_system_table(name: TableReference) -> None:
    """Raises OptionError if the name is the name of a system table, because a system table cannot be changed."""
    if name.system is not None:
        raise refused(f"{name} is a system table, which cannot be changed; change the table itself")


def is_path(name: TableReference) -> bool:
    """Returns True if the name is the path or URI of a table, in backticks."""
    return name.database is None and ("/" in name.table)


def _is_of_a_table(parts: list[str], catalogs: Mapping[str, Catalog]) -> bool:
    return len(parts) == 4 and (parts[0] == "*" or parts[0] in catalogs)
