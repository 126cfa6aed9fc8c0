"""The link from a table to its catalog, in storage options that begin with `catalog.`. A catalog sets these options,
and users never do. The link is sent to Spark's tasks together with the other storage options of the table, and is as
secret as these options.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bucketline.conf.catalog_options import CatalogSettings, catalog_settings
from bucketline.conf.storage_options import CATALOG_LINK

_TABLE, _PATH, _UUID = "table", "path", "uuid"
_OF_THE_TABLE = (_TABLE, _PATH, _UUID)


@dataclass(frozen=True, slots=True)
class CatalogLink:
    """A table of a catalog: its name in the catalog, the URI of its folder, and its id if the catalog gives an id."""

    settings: CatalogSettings
    table: str
    path: str
    uuid: str | None = None

    def as_options(self) -> dict[str, str]:
        """Returns this link as storage options that begin with `catalog.`, together with the options of the storage
        itself. A table that is opened with these options knows its catalog.
        """
        link_options = {**self.settings.options, _TABLE: self.table, _PATH: self.path}
        if self.uuid is not None:
            link_options[_UUID] = self.uuid
        return {**self.settings.storage, **{CATALOG_LINK + key: text for key, text in link_options.items()}}

    def holds(self, uri: str) -> bool:
        """Returns True if a URI is the table's folder, or a file or folder inside it."""
        return f"{uri.rstrip('/')}/".startswith(f"{self.path}/")


def link_of(storage: Mapping[str, str]) -> CatalogLink | None:
    """Returns the link that checked storage options contain; None if the table has no link to a catalog.

    Raises OptionError if the link is incomplete or was not made by a catalog.
    """
    link_options = {k.removeprefix(CATALOG_LINK): v for k, v in storage.items() if k.startswith(CATALOG_LINK)}
    if not link_options:
        return None
    options = {k: v for k, v in link_options.items() if k not in _OF_THE_TABLE}
    rest = {k: v for k, v in storage.items() if not k.startswith(CATALOG_LINK)}
    return CatalogLink(
        catalog_settings(options, rest),
        link_options.get(_TABLE, ""),
        link_options.get(_PATH, "").rstrip("/"),
        link_options.get(_UUID),
    )
