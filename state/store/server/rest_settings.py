"""Makes the client of a REST catalog, and merges its settings: the server's defaults, the options of this process, and
the server's overrides.
"""

from functools import lru_cache

from bucketline.conf.catalog_options import CatalogSettings, RestSettings, merged_with_server
from bucketline.state.store.server.rest_client import RestClient


def rest_client(settings: RestSettings) -> RestClient:
    """Returns a client with these settings. Sends no request."""
    return RestClient(settings.uri, settings.token, settings.prefix, settings.headers)


def configured(settings: CatalogSettings) -> CatalogSettings:
    """Returns the settings merged with the settings of the server, which is asked once in a process. Raises
    StorageError.
    """
    return _configured(tuple(sorted(settings.options.items())), tuple(sorted(settings.storage.items())))


@lru_cache(maxsize=64)
def _configured(options: tuple[tuple[str, str], ...], storage: tuple[tuple[str, str], ...]) -> CatalogSettings:
    return merged_with_server(
        dict(options), dict(storage), lambda settings: rest_client(settings.rest).config(settings.warehouse)
    )
