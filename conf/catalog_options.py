"""Options of a catalog: where a warehouse is, and who keeps the names of its tables. Storage options may be among them.

Source: Paimon 2.0 CatalogOptions, Catalog.TABLE_DEFAULT_OPTION_PREFIX.
"""

from collections.abc import Mapping
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
from bucketline.conf.storage_options import check_storage_options, is_storage_key


class Metastore(Enum):
    """Who keeps the names of a catalog's tables."""

    FILESYSTEM = "filesystem"
    JDBC = "jdbc"


METASTORE = Option("metastore", parse_enum(Metastore), Metastore.FILESYSTEM, "who keeps the names of tables")
WAREHOUSE = Option("warehouse", parse_given_text, None, "path or URI of the folder with the databases")
CASE_SENSITIVE = Option("case-sensitive", parse_bool, True, "false: names of databases and tables are lower case")
URI = Option("uri", parse_given_text, None, "jdbc: the database, as jdbc:sqlite:/data/catalog.db")
JDBC_USER = Option("jdbc.user", parse_text, None, "jdbc: who logs in")
JDBC_PASSWORD = Option("jdbc.password", parse_text, None, "jdbc: the password")
CATALOG_KEY = Option("catalog-key", parse_given_text, "jdbc", "jdbc: the name of this catalog in the database")
SYNC_PROPERTIES = Option(
    "sync-all-properties", parse_bool, True, "jdbc: whether a table's options are written to the database too"
)
LOCK_ENABLED = Option(
    "lock.enabled", parse_bool, None, "jdbc: whether publications take Paimon's lock; default: on object stores"
)
LOCK_TIMEOUT = Option("lock-acquire-timeout", parse_duration, 480_000, "jdbc: longest wait for the lock, and its life")
LOCK_SLEEP = Option("lock-check-max-sleep", parse_duration, 8_000, "jdbc: longest pause between two tries")
TABLE_DEFAULT = "table-default."
"""Options with this prefix are given to each table that the catalog creates, unless the table has its own."""

CATALOG_OPTIONS: Mapping[str, Option[Any]] = {
    found.key: found for found in tuple(globals().values()) if isinstance(found, Option)
}


_ONLY_FOR = {
    option.key: (Metastore.JDBC,)
    for option in (URI, JDBC_USER, JDBC_PASSWORD, CATALOG_KEY, SYNC_PROPERTIES, LOCK_ENABLED, LOCK_TIMEOUT, LOCK_SLEEP)
}


@dataclass(frozen=True, slots=True, repr=False)
class JdbcSettings:
    """A database that keeps the names of tables, as Paimon's JdbcCatalog does; `locks` None means: on object stores."""

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
    """A catalog's options and storage options, checked; printing them shows no secrets."""

    options: MaskedOptions
    storage: MaskedOptions

    @property
    def metastore(self) -> Metastore:
        return METASTORE.get(self.options)

    @property
    def warehouse(self) -> str:
        """The path, URI or name of the warehouse, as it was given."""
        return WAREHOUSE.get(self.options)

    @property
    def is_case_sensitive(self) -> bool:
        """Whether names may hold capitals; in a JDBC catalog they never do."""
        return self.metastore is not Metastore.JDBC and CASE_SENSITIVE.get(self.options)

    @property
    def jdbc(self) -> "JdbcSettings":
        """The settings of a JDBC catalog."""
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
    def table_defaults(self) -> dict[str, str]:
        """The options of tables that do not set them themselves."""
        return {k.removeprefix(TABLE_DEFAULT): v for k, v in self.options.items() if k.startswith(TABLE_DEFAULT)}


def catalog_settings(given: str | Mapping[str, str], storage_options: Mapping[str, str] | None) -> CatalogSettings:
    """The settings of a catalog: `given` is a warehouse's path or URI, or options.

    Raises OptionError for an unknown option, naming the nearest, for a value that cannot be read, and for a storage
    option that is given in both places with two values.
    """
    options: dict[str, str] = {}
    storage = dict(storage_options or {})
    for key, text in ({WAREHOUSE.key: given} if isinstance(given, str) else given).items():
        if is_storage_key(key):
            if storage.get(key, text) != text:
                raise OptionError(f"'{key}' is given twice: as an option of the catalog and of the storage", key=key)
            storage[key] = text
        elif key in CATALOG_OPTIONS or (key.startswith(TABLE_DEFAULT) and key != TABLE_DEFAULT):
            options[key] = text
        else:
            known = (*CATALOG_OPTIONS, TABLE_DEFAULT)
            raise OptionError(
                f"unknown option '{key}' of a catalog{did_you_mean(key, known)}; known are {', '.join(known)}, and "
                "storage options",
                key=key,
            )
    for option in CATALOG_OPTIONS.values():
        option.find(options)
    WAREHOUSE.get(options)
    metastore = METASTORE.get(options)
    for key in options:
        if key in _ONLY_FOR and metastore not in _ONLY_FOR[key]:
            raise OptionError(f"'{key}' has no meaning for '{METASTORE.key}' = {metastore.value}", key=key)
    if metastore is Metastore.JDBC:
        URI.get(options)
    return CatalogSettings(MaskedOptions(options), check_storage_options(storage))
