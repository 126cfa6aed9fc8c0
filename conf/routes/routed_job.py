"""A job of several tables: its routes, and the settings of each table.

The settings at the top level of the file are the defaults of every route. A setting of a route replaces the default. If
the setting is a map, such as `options`, the entries of the route are added to the entries of the default, and replace
entries with the same key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from bucketline.conf.column_options import EXPECT, SELECT, WHERE
from bucketline.conf.errors import OptionError
from bucketline.conf.job import (
    CREATE,
    CREATE_COMMENT,
    CREATE_OPTIONS,
    CREATE_PARTITION_BY,
    CREATE_PRIMARY_KEY,
    CREATE_SCHEMA,
    OPTIONS,
    SOURCE_DECODE,
    TABLE,
    JobConfig,
    RecordFormat,
    Setting,
    job_config,
)
from bucketline.conf.metrics_options import METRICS_OPTIONS
from bucketline.conf.option import nearest_key
from bucketline.conf.plan_options import PLAN_PREFIX, makes_plans
from bucketline.conf.routes.route import Names, Route, SourceName, check_target
from bucketline.conf.routes.route_options import (
    COMMIT_PARALLELISM,
    EXCLUDE,
    MANY_OPTIONS,
    ON_TABLE_FAILURE,
    PATTERNS,
    TABLES,
    TOPIC,
    UNMATCHED,
    OnTableFailure,
    Unmatched,
)
from bucketline.conf.sink_options import BAD_RECORDS_MAX, BAD_RECORDS_PATH
from bucketline.conf.sources.message_options import (
    INFINITY,
    SHARDS,
    SOURCE_TABLE,
    TRUNCATE,
    TYPE_MAPPING,
    TYPES,
    UNAVAILABLE_KEY,
    UNAVAILABLE_VALUE,
)
from bucketline.conf.sources.source_options import KAFKA
from bucketline.conf.table.own_options import COMPACTION, Compaction

_ROUTE_KEYS = (
    *(option.key for option in PATTERNS),
    *(option.key for option in (TABLE, SHARDS, TRUNCATE, UNAVAILABLE_KEY, UNAVAILABLE_VALUE, INFINITY, TYPE_MAPPING)),
    *(option.key for option in (SELECT, WHERE, BAD_RECORDS_PATH, BAD_RECORDS_MAX)),
    *(option.key for option in (CREATE, CREATE_SCHEMA, CREATE_PRIMARY_KEY, CREATE_PARTITION_BY, CREATE_COMMENT)),
)
_ROUTE_FAMILIES = (CREATE_OPTIONS, OPTIONS, TYPES, EXPECT)
"""Prefixes of settings that a route may have. All other settings belong at the top level of the file."""
_NOT_OF_TABLES = (SOURCE_TABLE.key, TOPIC.key)
"""The settings of a route that only say which records it takes."""
ROUTES_FORM = "a list of routes, as in `tables: [{source-table: ..., table: ...}]`"
"""The form of the setting `tables`, for errors."""
_WITHOUT_PLANS = frozenset(c.value for c in Compaction if not makes_plans(c))
"""The values of `compaction` with which a writer makes no compaction plans."""


class Left(Enum):
    """The reasons why a record goes to no table."""

    EXCLUDED = "excluded"
    UNMATCHED = "unmatched"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The table to which a record goes, and the number of the route that took the record."""

    route: int
    table: str


@dataclass(frozen=True, slots=True)
class RoutedJob:
    """A job of several tables.

    `common` has the settings that all tables share, in the form of a job without a table. The first route in `routes`
    that takes a record determines the table of the record. `exclude` has the names of source tables whose records are
    left out. `settings` says where each setting comes from.
    """

    common: JobConfig
    routes: tuple[Route, ...]
    exclude: tuple[Names, ...] = ()
    unmatched: Unmatched = Unmatched.FAIL
    on_table_failure: OnTableFailure = OnTableFailure.STOP
    commit_parallelism: int = 8
    settings: Mapping[str, Setting] = field(default_factory=dict, repr=False)

    @property
    def decode(self) -> RecordFormat:
        """Returns the message format, which is the same for all tables."""
        return self.common.source.decode

    @property
    def asks_names(self) -> bool:
        """Returns True if the routes depend on the source tables that records name, and not only on topics."""
        return bool(self.exclude) or any(route.asks_names for route in self.routes)

    def resolve(self, name: SourceName | None, topic: str | None) -> Resolved | Left:
        """Returns the table to which records of this source table and topic go, or the reason why these records go to
        no table. Raises OptionError if the name of the source table cannot be a part of a table's name.
        """
        if name is not None and any(names.groups(name.texts) is not None for names in self.exclude):
            return Left.EXCLUDED
        for route in self.routes:
            groups = route.takes(name, topic)
            if groups is not None:
                return Resolved(route.number, route.table_of(name, groups))
        return Left.UNMATCHED

    def settings_of(self, route: int) -> dict[str, Setting]:
        """Returns the settings for the tables of a route, without the name of the table."""
        of_route = dict(_settings_of_route(self.settings, route))
        merged = _merged(_common(self.settings), of_route)
        return {key: setting for key, setting in merged.items() if key not in (*_NOT_OF_TABLES, TABLE.key)}

    def config_of(self, to: Resolved) -> JobConfig:
        """Returns the settings of one table in the form of a job that has only this table. `to` names the table and the
        route that sends records to it.

        Raises OptionError for settings that contradict each other.
        """
        origin = f"tables[{to.route}]"
        try:
            return job_config({**self.settings_of(to.route), TABLE.key: Setting(to.table, origin)})
        except OptionError as e:
            raise e.reworded(f"{origin}: {e.message}") from e

    def differing(self, one: int, other: int) -> str | None:
        """Returns the key of a table setting that has different values in two routes; None if all values are equal.
        `one` and `other` are the numbers of the routes.
        """
        texts = [{k: s.text for k, s in self.settings_of(number).items()} for number in (one, other)]
        return next((k for k in sorted({*texts[0], *texts[1]}) if texts[0].get(k) != texts[1].get(k)), None)


def has_routes(settings: Mapping[str, Setting]) -> bool:
    """Returns True if the settings describe a job of several tables."""
    return any(key.startswith(TABLES) for key in settings)


def check_route_key(key: str, origin: str) -> str:
    """Returns the key inside a route, for example `table` for `tables.0.table`. Raises OptionError for a key that
    routes cannot have. `origin` says in the error where the key was found.
    """
    number, _, name = key.removeprefix(TABLES).partition(".")
    if not number.isdigit() or not name:
        raise OptionError(f"'tables' in {origin} must be {ROUTES_FORM}")
    if name.removeprefix(OPTIONS) in METRICS_OPTIONS:
        raise OptionError(
            f"'{name}' in tables[{number}] of {origin} is the same for all tables of a job: write it at the top level "
            "of the file",
            key=name,
        )
    if name in _ROUTE_KEYS or (name.startswith(_ROUTE_FAMILIES) and name not in _ROUTE_FAMILIES):
        return name
    raise OptionError(
        f"unknown key '{name}' in tables[{number}] of {origin}{nearest_key(name, _ROUTE_KEYS)}; a route may have "
        f"{', '.join(_ROUTE_KEYS[:3])} and the options of its table; all other settings belong at the top level of the "
        "file",
        key=name,
    )


def routed_job(settings: Mapping[str, Setting]) -> RoutedJob:
    """Returns the job of several tables that the settings describe. The caller must have checked the keys of the
    settings.

    Raises OptionError for a value that is not valid, and for settings that contradict each other.
    """
    texts = {key: setting.text for key, setting in _common(settings).items()}
    for option in (TABLE, SOURCE_TABLE):
        if option.key in texts:
            raise OptionError(
                f"a job with 'tables' cannot have '{option.key}' at the top level: write it into a route",
                key=option.key,
            )
    common = job_config({**_common(settings), TABLE.key: Setting("tables", "tables")})
    job = RoutedJob(
        common=common,
        routes=tuple(_routes(settings)),
        exclude=tuple(Names(text) for text in _excluded(settings)),
        unmatched=UNMATCHED.get(texts),
        on_table_failure=ON_TABLE_FAILURE.get(texts),
        commit_parallelism=COMMIT_PARALLELISM.get(texts),
        settings=dict(settings),
    )
    _check_source(job)
    _check_routes(job)
    return job


def refuse_alone(settings: Mapping[str, Setting]) -> None:
    """Raises OptionError if a job of one table has a setting that is only for jobs of several tables."""
    for option in MANY_OPTIONS:
        key = next((k for k in settings if k == option.key or k.startswith(f"{option.key}.")), None)
        if key is not None:
            raise OptionError(
                f"'{option.key}' has an effect only in jobs with 'tables', but this job has one table; remove it",
                key=option.key,
            )


def _routes(settings: Mapping[str, Setting]) -> Iterator[Route]:
    numbers = sorted({int(key.removeprefix(TABLES).partition(".")[0]) for key in settings if key.startswith(TABLES)})
    for number in numbers:
        texts = {key: setting.text for key, setting in _settings_of_route(settings, number)}
        given = [option for option in PATTERNS if option.key in texts]
        if len(given) != 1:
            raise OptionError(
                f"tables[{number}] needs either source-table or topic: they say which records the route takes",
                key=SOURCE_TABLE.key,
            )
        if TABLE.key not in texts:
            raise OptionError(f"tables[{number}] needs 'table': the table that its records go to", key=TABLE.key)
        names, target = Names(given[0].get(texts)), TABLE.get(texts)
        check_target(target, names, f"tables[{number}].table")
        yield Route(number, names, given[0] is TOPIC, target)


def _settings_of_route(settings: Mapping[str, Setting], number: int) -> Iterator[tuple[str, Setting]]:
    prefix = f"{TABLES}{number}."
    return ((key.removeprefix(prefix), s) for key, s in settings.items() if key.startswith(prefix))


def _common(settings: Mapping[str, Setting]) -> dict[str, Setting]:
    """Returns the settings at the top level of the file, without `exclude` and the settings of the routes."""
    kept = (f"{EXCLUDE.key}.", TABLES)
    return {key: setting for key, setting in settings.items() if not key.startswith(kept)}


def _merged(defaults: Mapping[str, Setting], own: Mapping[str, Setting]) -> dict[str, Setting]:
    """Returns the settings of a route, with the defaults added for settings that the route does not have. If the
    route sets `a`, a default for `a.b` is left out, and the other way round. The options of compaction plans are left
    out if the route sets a `compaction` that makes no plans, because a table of the route would refuse them.
    """
    replaced = {key for key in defaults if any(_is_inside(key, k) or _is_inside(k, key) for k in own)}
    compaction = own.get(f"{OPTIONS}{COMPACTION.key}")
    if compaction is not None and compaction.text.strip().lower() in _WITHOUT_PLANS:
        replaced |= {key for key in defaults if key.startswith(f"{OPTIONS}{PLAN_PREFIX}")}
    return {key: setting for key, setting in defaults.items() if key not in replaced} | dict(own)


def _is_inside(key: str, outer: str) -> bool:
    return key.startswith(f"{outer}.")


def _excluded(settings: Mapping[str, Setting]) -> Iterator[str]:
    for key, setting in settings.items():
        if key == EXCLUDE.key or key.startswith(f"{EXCLUDE.key}."):
            yield EXCLUDE.get({EXCLUDE.key: setting.text})


def _check_source(job: RoutedJob) -> None:
    decode, source = job.common.source.decode, job.common.source
    if decode is RecordFormat.NONE:
        raise OptionError(
            (
                f"a job with 'tables' needs a message format in {SOURCE_DECODE.key}, because it sorts records by "
                "their messages"
            ),
            key=SOURCE_DECODE.key,
        )
    for route in job.routes:
        if route.of_topic and source.format != KAFKA:
            raise OptionError(
                f"tables[{route.number}] names a Kafka topic, but source.format is {source.format}; use source-table",
                key=TOPIC.key,
            )
        if route.asks_names and not decode.names_tables:
            raise OptionError(
                f"tables[{route.number}] needs records that name their table, but with '{SOURCE_DECODE.key}' = "
                f"'{decode.value}' records do not name it; use topic, and no {{database}}, {{schema}} or {{table}}",
                key=SOURCE_TABLE.key,
            )
    if job.exclude and not decode.names_tables:
        raise OptionError(
            f"{EXCLUDE.key} needs records that name their table, but with '{SOURCE_DECODE.key}' = '{decode.value}' "
            f"records do not name it; remove {EXCLUDE.key}",
            key=EXCLUDE.key,
        )


def _check_routes(job: RoutedJob) -> None:
    """Raises OptionError if settings of a route contradict each other, or if two routes to the same table have
    different settings.
    """
    fixed: dict[str, int] = {}
    for route in job.routes:
        job.config_of(Resolved(route.number, route.target))
        if "{" in route.target:
            continue
        first = fixed.setdefault(route.target, route.number)
        refuse_differing(job, first, route.number, route.target)


def refuse_differing(job: RoutedJob, one: int, other: int, table: str) -> None:
    """Raises OptionError if two routes to the same table have different settings for the table. `one` and `other` are
    the numbers of the routes.
    """
    key = job.differing(one, other)
    if key is not None:
        raise OptionError(
            f"tables[{one}] and tables[{other}] both go to {table!r}, but have different values of {key!r}; "
            "set the same value in both",
            key=key,
        )
