"""Chooses the storage that a URI names. `linked_io` adds what the catalog of a table needs."""

from collections.abc import Mapping

from bucketline.conf.errors import OptionError
from bucketline.state.determinism import World
from bucketline.state.store.storage.hdfs_client import HDFS_SCHEMES
from bucketline.state.store.storage.hdfs_io import hdfs_io_for
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.storage.objects.object_io import object_io_for
from bucketline.state.store.storage.objects.object_store import OBJECT_SCHEMES
from bucketline.state.store.storage.wrapped_io import Inner

_FILE = "file"
_SCHEMES = OBJECT_SCHEMES | HDFS_SCHEMES


def plain_io(uri: str, options: Mapping[str, str], world: World) -> tuple[Inner, str]:
    """Returns the storage that a URI names, and the path of the URI as this storage writes it. `options` are storage
    options that have been checked.
    """
    scheme, path = check_uri(uri)
    if scheme in OBJECT_SCHEMES:
        return object_io_for(f"{scheme}:{path}", options, world)
    if scheme in HDFS_SCHEMES:
        return hdfs_io_for(f"{scheme}:{path}", options, world)
    return LocalIO(world), LocalIO.absolute(path)


def check_uri(uri: str) -> tuple[str, str]:
    """Returns the scheme of a path or URI in lower case (`file` for a path), and what follows the scheme. Sends no
    request.

    Raises OptionError if there is no storage for the scheme, and for a file URI without an absolute path.
    """
    scheme, separator, rest = uri.partition(":")
    if not separator or "/" in scheme:
        return _FILE, uri
    scheme = scheme.lower()
    if scheme == _FILE:
        path = rest.removeprefix("//") if rest.startswith("///") else rest
        if not path.startswith("/") or path.startswith("//"):
            raise OptionError(f"{uri}: a file URI must have an absolute path, as in file:/data/warehouse", uri=uri)
        return _FILE, path
    if scheme not in _SCHEMES:
        raise OptionError(
            f"{uri}: there is no storage for the scheme '{scheme}'; known are file, {', '.join(sorted(_SCHEMES))}",
            uri=uri,
            scheme=scheme,
        )
    return scheme, rest
