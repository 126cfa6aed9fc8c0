"""Options of a catalog: where its warehouse is, and which service stores the names of its tables. The options may
include storage options.

Source: Paimon 2.0 CatalogOptions, Catalog.TABLE_DEFAULT_OPTION_PREFIX.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bucketline.conf.errors import OptionError
from bucketline.conf.option import (
    Option,
    did_you_mean,
    parse_bool,
    parse_duration,
    parse_enum,
    parse_given_text,
    parse_text,
)
from bucketline.conf.secrets import MaskedOptions
from bucketline.conf.storage_options import check_storage_options, is_storage_key, known_storage_options


class MetastoreKind(Enum):
    """The kinds of services that store the names of a catalog's tables."""

    FILESYSTEM = "filesystem"
    JDBC = "jdbc"
    REST = "rest"


METASTORE = Option(
    "metastore", parse_enum(MetastoreKind), MetastoreKind.FILESYSTEM, "which service stores the names of tables"
)
WAREHOUSE = Option("warehouse", parse_given_text, None, "path or URI of the folder with the databases")
CASE_SENSITIVE = Option(
    "case-sensitive", parse_bool, True, "false: names of databases and tables must be in lower case"
)
URI = Option("uri", parse_given_text, None, "rest: the address of the server; jdbc: the address of the database")
TOKEN = Option("token", parse_given_text, None, "rest: the bearer token")
TOKEN_PROVIDER = Option(
    "token.provider", parse_text, "bear", "rest: how to log in; only 'bear' (by the token) is supported"
)
PREFIX = Option("prefix", parse_text, None, "rest: a prefix of all request paths, which the server sends")
LENDS_KEYS = Option(
    "data-token.enabled", parse_bool, False, "rest: whether the server returns short-lived keys for the storage"
)
JDBC_USER = Option("jdbc.user", parse_text, None, "jdbc: the user who logs in to the database")
JDBC_PASSWORD = Option("jdbc.password", parse_text, None, "jdbc: the password")
CATALOG_KEY = Option("catalog-key", parse_given_text, "jdbc", "jdbc: the name of this catalog in the database")
SYNC_PROPERTIES = Option(
    "sync-all-properties", parse_bool, True, "jdbc: whether a table's options are written to the database too"
)
LOCK_ENABLED = Option(
    "lock.enabled",
    parse_bool,
    None,
    "jdbc: whether a commit takes Paimon's lock before it publishes; default: only on object stores",
)
LOCK_TIMEOUT = Option(
    "lock-acquire-timeout",
    parse_duration,
    480_000,
    "jdbc: how long a commit waits for the lock, and how long it may hold the lock",
)
LOCK_SLEEP = Option(
    "lock-check-max-sleep", parse_duration, 8_000, "jdbc: the longest pause between two attempts to get the lock"
)
HEADER = "header."
"""Options with this prefix are headers that each request to a REST server carries."""
TABLE_DEFAULT = "table-default."
"""An option with this prefix is the default of an option for each table that the catalog creates."""

CATALOG_OPTIONS: Mapping[str, Option[Any]] = {
    option.key: option for option in tuple(globals().values()) if isinstance(option, Option)
}


_FOR_REST = (TOKEN, TOKEN_PROVIDER, PREFIX, LENDS_KEYS)
_FOR_JDBC = (JDBC_USER, JDBC_PASSWORD, CATALOG_KEY, SYNC_PROPERTIES, LOCK_ENABLED, LOCK_TIMEOUT, LOCK_SLEEP)
_ONLY_FOR: Mapping[str, tuple[MetastoreKind, ...]] = {
    URI.key: (MetastoreKind.JDBC, MetastoreKind.REST),
    **{option.key: (MetastoreKind.REST,) for option in _FOR_REST},
    **{option.key: (MetastoreKind.JDBC,) for option in _FOR_JDBC},
}
_FAMILIES = (TABLE_DEFAULT, HEADER)
_NO_DLF = "bucketline can log in only with a bearer token ('token'); DLF's signatures are not supported"


@dataclass(frozen=True, slots=True, repr=False)
class RestSettings:
    """The settings of a REST catalog: a server with Paimon's REST protocol that stores the names of tables and their
    newest snapshots.
    """

    uri: str
    token: str | None
    prefix: str | None
    lends_keys: bool
    headers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, repr=False)
class JdbcSettings:
    """The settings of a JDBC catalog: a database that stores the names of tables, as Paimon's JdbcCatalog does. If
    `locks` is None, commits take the catalog's lock only for tables on object stores.
    """

    uri: str
    user: str | None
    password: str | None
    key: str
    syncs_properties: bool
    locks: bool | None
    lock_timeout_ms: int
    lock_sleep_ms: int


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    """The checked options and storage options of a catalog. Printing the object does not show secrets."""

    options: MaskedOptions
    storage: MaskedOptions

    @property
    def metastore(self) -> MetastoreKind:
        return METASTORE.get(self.options)

    @property
    def warehouse(self) -> str:
        """Returns the path, URI or name of the warehouse, as it was given."""
        return WAREHOUSE.get(self.options)

    @property
    def is_case_sensitive(self) -> bool:
        """Returns True if names of databases and tables may have capital letters. In a JDBC catalog, names never have
        capital letters.
        """
        return self.metastore is not MetastoreKind.JDBC and CASE_SENSITIVE.get(self.options)

    @property
    def jdbc(self) -> "JdbcSettings":
        """Returns the settings of a JDBC catalog."""
        return JdbcSettings(
            uri=URI.get(self.options),
            user=JDBC_USER.find(self.options),
            password=JDBC_PASSWORD.find(self.options),
            key=CATALOG_KEY.get(self.options),
            syncs_properties=SYNC_PROPERTIES.get(self.options),
            locks=LOCK_ENABLED.find(self.options),
            lock_timeout_ms=LOCK_TIMEOUT.get(self.options),
            lock_sleep_ms=LOCK_SLEEP.get(self.options),
        )

    @property
    def rest(self) -> RestSettings:
        """Returns the settings of a REST catalog."""
        headers = {k.removeprefix(HEADER): v for k, v in self.options.items() if k.startswith(HEADER)}
        return RestSettings(
            uri=URI.get(self.options),
            token=TOKEN.find(self.options),
            prefix=PREFIX.find(self.options),
            lends_keys=LENDS_KEYS.get(self.options),
            headers=tuple(sorted(headers.items())),
        )

    @property
    def table_defaults(self) -> dict[str, str]:
        """Returns the options that a new table gets if its own options do not set them."""
        return {k.removeprefix(TABLE_DEFAULT): v for k, v in self.options.items() if k.startswith(TABLE_DEFAULT)}


def catalog_settings(given: str | Mapping[str, str], storage_options: Mapping[str, str] | None) -> CatalogSettings:
    """Returns the checked settings of a catalog. `given` is the path or URI of a warehouse, or a map of options.

    Raises OptionError for an unknown option (the message names the most similar known option), for a value that cannot
    be read, and for a storage option that has different values in the two arguments.
    """
    options: dict[str, str] = {}
    storage = dict(storage_options or {})
    for key, text in ({WAREHOUSE.key: given} if isinstance(given, str) else given).items():
        if key.startswith("dlf."):
            raise OptionError(f"'{key}': {_NO_DLF}", key=key)
        if is_storage_key(key):
            if storage.get(key, text) != text:
                raise OptionError(
                    f"'{key}' has two different values, one among the options of the catalog and one among the storage "
                    "options; remove one of them",
                    key=key,
                )
            storage[key] = text
        elif key in CATALOG_OPTIONS or (key.startswith(_FAMILIES) and key not in _FAMILIES):
            options[key] = text
        else:
            known = (*CATALOG_OPTIONS, *_FAMILIES)
            raise OptionError(
                f"unknown option '{key}' of a catalog{did_you_mean(key, known)}; known options are "
                f"{', '.join(known)}, and "
                "storage options",
                key=key,
            )
    for option in CATALOG_OPTIONS.values():
        option.find(options)
    WAREHOUSE.get(options)
    metastore = METASTORE.get(options)
    for key in options:
        if metastore not in _ONLY_FOR.get(key, (metastore,)) or (
            key.startswith(HEADER) and metastore is not MetastoreKind.REST
        ):
            raise OptionError(f"'{key}' has no meaning for '{METASTORE.key}' = {metastore.value}; remove it", key=key)
    if metastore is not MetastoreKind.FILESYSTEM:
        URI.get(options)
    provider = TOKEN_PROVIDER.get(options)
    if provider != TOKEN_PROVIDER.default:
        raise OptionError(f"'{TOKEN_PROVIDER.key}' = {provider!r}: {_NO_DLF}", key=TOKEN_PROVIDER.key)
    if metastore is MetastoreKind.REST and not URI.get(options).startswith(("http://", "https://")):
        raise OptionError(f"'{URI.key}' must be an http or https address", key=URI.key)
    return CatalogSettings(MaskedOptions(options), check_storage_options(storage))


def merged_with_server(
    given: Mapping[str, str], storage: Mapping[str, str], ask: Callable[[CatalogSettings], Mapping[str, object]]
) -> CatalogSettings:
    """Asks the server of a REST catalog for its settings, and returns them combined with the given settings and storage
    options. What is given replaces the server's defaults, and the server's overrides replace what is given.

    `ask` is the function that asks the server. Options from the server that bucketline does not know are left out,
    because the server also configures other clients.
    """
    answer = ask(catalog_settings(given, storage))
    defaults, overrides = _texts(answer.get("defaults")), _texts(answer.get("overrides"))
    known = {k: v for k, v in (defaults | dict(given) | overrides).items() if _is_for_rest(k)}
    known_storage = known_storage_options(defaults) | dict(storage) | known_storage_options(overrides)
    options = known | {k: given[k] for k in (METASTORE.key, WAREHOUSE.key, URI.key) if k in given}
    return catalog_settings(options, known_storage)


def _is_for_rest(key: str) -> bool:
    if key.startswith(_FAMILIES):
        return key not in _FAMILIES
    return key in CATALOG_OPTIONS and MetastoreKind.REST in _ONLY_FOR.get(key, (MetastoreKind.REST,))


def _texts(section: object) -> dict[str, str]:
    return {str(k): str(v) for k, v in section.items() if v is not None} if isinstance(section, dict) else {}
