"""A job of several tables: its routes, and the settings of each table.

The settings at the top of the file are the defaults of every route. A setting of a route replaces the default. If it is
a map, such as `options`, the entries of the route and of the default are put together, and an entry of the route wins
over an entry of the default.
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
from bucketline.conf.option import nearest_key
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

_ROUTE_KEYS = (
    *(option.key for option in PATTERNS),
    *(option.key for option in (TABLE, SHARDS, TRUNCATE, UNAVAILABLE_KEY, UNAVAILABLE_VALUE, INFINITY, TYPE_MAPPING)),
    *(option.key for option in (SELECT, WHERE, BAD_RECORDS_PATH, BAD_RECORDS_MAX)),
    *(option.key for option in (CREATE, CREATE_SCHEMA, CREATE_PRIMARY_KEY, CREATE_PARTITION_BY, CREATE_COMMENT)),
)
_ROUTE_FAMILIES = (CREATE_OPTIONS, OPTIONS, TYPES, EXPECT)
"""Prefixes of settings that a route may have. All other settings stand once, at the top of the file."""
_NOT_OF_TABLES = (SOURCE_TABLE.key, TOPIC.key)
"""The settings that only say which records a table gets."""


class Left(Enum):
    """Why a record goes to no table."""

    EXCLUDED = "excluded"
    UNMATCHED = "unmatched"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The table that a record goes to, and the number of the route that took the record."""

    route: int
    table: str


@dataclass(frozen=True, slots=True)
class RoutedJob:
    """A job of several tables.

    `common` has the settings of all tables, as a job without a table. The first of `routes` that takes a record
    decides. `exclude` holds names of source tables whose records are left out. `settings` says where each text comes
    from.
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
        """The message format, which is the same for all tables."""
        return self.common.source.decode

    @property
    def asks_names(self) -> bool:
        """Whether the routes depend on the source tables that records name, and not only on topics."""
        return bool(self.exclude) or any(route.asks_names for route in self.routes)

    def resolve(self, name: SourceName | None, topic: str | None) -> Resolved | Left:
        """The table that records with this name and topic go to, or why they go to none. Raises OptionError where the
        name may not be a part of a table's name."""
        if name is not None and any(names.groups(name.texts) is not None for names in self.exclude):
            return Left.EXCLUDED
        for route in self.routes:
            groups = route.takes(name, topic)
            if groups is not None:
                return Resolved(route.number, route.table_of(name, groups))
        return Left.UNMATCHED

    def settings_of(self, route: int) -> dict[str, Setting]:
        """The settings for the tables of a route, without the name of the table."""
        of_route = dict(_settings_of_route(self.settings, route))
        merged = _merged(_common(self.settings), of_route)
        return {key: setting for key, setting in merged.items() if key not in (*_NOT_OF_TABLES, TABLE.key)}

    def config_of(self, to: Resolved) -> JobConfig:
        """The settings of one table, as a job of that table alone.

        Raises OptionError for settings that do not go together.
        """
        origin = f"tables[{to.route}]"
        try:
            return job_config({**self.settings_of(to.route), TABLE.key: Setting(to.table, origin)})
        except OptionError as e:
            raise e.reworded(f"{origin}: {e.message}") from e

    def differing(self, one: int, other: int) -> str | None:
        """The key of a setting in which two routes differ; None if they treat their tables alike."""
        texts = [{k: s.text for k, s in self.settings_of(number).items()} for number in (one, other)]
        return next((k for k in sorted({*texts[0], *texts[1]}) if texts[0].get(k) != texts[1].get(k)), None)


def has_routes(settings: Mapping[str, Setting]) -> bool:
    """Whether settings belong to a job of several tables."""
    return any(key.startswith(TABLES) for key in settings)


def check_route_key(key: str, origin: str) -> str:
    """The key of a setting inside of a route: `key` of `tables.0.key`. Raises OptionError for a key that routes do not
    have.
    """
    number, _, name = key.removeprefix(TABLES).partition(".")
    if not number.isdigit() or not name:
        raise OptionError(
            f"'tables' in {origin} is a list of routes, as in `tables: [{{source-table: ..., table: ...}}]`"
        )
    if name in _ROUTE_KEYS or (name.startswith(_ROUTE_FAMILIES) and name not in _ROUTE_FAMILIES):
        return name
    raise OptionError(
        f"unknown key '{name}' in tables[{number}] of {origin}{nearest_key(name, _ROUTE_KEYS)}; a route has "
        f"{', '.join(_ROUTE_KEYS[:3])} and options of its table; all other settings stand once, at the top of the file",
        key=name,
    )


def routed_job(settings: Mapping[str, Setting]) -> RoutedJob:
    """The job of several tables from flat settings, whose keys have been checked.

    Raises OptionError for an invalid value, and for settings that do not go together.
    """
    texts = {key: setting.text for key, setting in _common(settings).items()}
    for option in (TABLE, SOURCE_TABLE):
        if option.key in texts:
            raise OptionError(
                f"a job with 'tables' cannot have '{option.key}' at the top: write it into a route", key=option.key
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
    """Checks that a job of one table has no setting that is only for jobs of several tables. Raises OptionError if it
    has one.
    """
    for option in MANY_OPTIONS:
        key = next((k for k in settings if k == option.key or k.startswith(f"{option.key}.")), None)
        if key is not None:
            raise OptionError(
                f"'{option.key}' has an effect only in jobs with 'tables', and this job has one table", key=option.key
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
    """The settings at the top of the file, without `exclude` and the settings of the routes."""
    kept = (f"{EXCLUDE.key}.", TABLES)
    return {key: setting for key, setting in settings.items() if not key.startswith(kept)}


def _merged(defaults: Mapping[str, Setting], own: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings of a route with the defaults added. A text replaces a map, and a map replaces a text."""
    replaced = {key for key in defaults if any(_is_inside(key, k) or _is_inside(k, key) for k in own)}
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
                f"tables[{route.number}] takes a Kafka topic, and source.format is {source.format}; use source-table",
                key=TOPIC.key,
            )
        if route.asks_names and not decode.names_tables:
            raise OptionError(
                f"tables[{route.number}] needs records that name their table, which messages of decode: "
                f"{decode.value} do not; use topic, and no {{database}}, {{schema}} or {{table}}",
                key=SOURCE_TABLE.key,
            )
    if job.exclude and not decode.names_tables:
        raise OptionError(
            f"{EXCLUDE.key} needs records that name their table, which messages of decode: {decode.value} do not",
            key=EXCLUDE.key,
        )


def _check_routes(job: RoutedJob) -> None:
    """Checks the routes: raises OptionError if settings of a route do not go together, or two routes to one table
    differ.
    """
    fixed: dict[str, int] = {}
    for route in job.routes:
        job.config_of(Resolved(route.number, route.target))
        if "{" in route.target:
            continue
        first = fixed.setdefault(route.target, route.number)
        refuse_differing(job, first, route.number, route.target)


def refuse_differing(job: RoutedJob, one: int, other: int, table: str) -> None:
    """Checks that two routes to one table have the same settings for the table. Raises OptionError if not."""
    key = job.differing(one, other)
    if key is not None:
        raise OptionError(
            f"tables[{one}] and tables[{other}] both go to {table!r}, which is written once a batch, but set {key!r} "
            "differently; set the same value in both",
            key=key,
        )
