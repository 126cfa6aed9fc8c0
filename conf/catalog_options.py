"""Options of a catalog: where a warehouse is, and who keeps the names of its tables. Storage options may be among them.

Source: Paimon 2.0 CatalogOptions, Catalog.TABLE_DEFAULT_OPTION_PREFIX.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, did_you_mean, parse_bool, parse_enum, parse_given_text
from bucketline.conf.secrets import MaskedOptions
from bucketline.conf.storage_options import check_storage_options, is_storage_key


class Metastore(Enum):
    """Who keeps the names of a catalog's tables."""

    FILESYSTEM = "filesystem"


METASTORE = Option("metastore", parse_enum(Metastore), Metastore.FILESYSTEM, "who keeps the names of tables")
WAREHOUSE = Option("warehouse", parse_given_text, None, "path or URI of the folder with the databases")
CASE_SENSITIVE = Option("case-sensitive", parse_bool, True, "false: names of databases and tables are lower case")
TABLE_DEFAULT = "table-default."
"""Options with this prefix are given to each table that the catalog creates, unless the table has its own."""

CATALOG_OPTIONS: Mapping[str, Option[Any]] = {
    found.key: found for found in tuple(globals().values()) if isinstance(found, Option)
}


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
        return CASE_SENSITIVE.get(self.options)

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
    return CatalogSettings(MaskedOptions(options), check_storage_options(storage))
