"""The storage that a URI names, before a catalog adds anything to it."""

from collections.abc import Mapping

from bucketline.conf.errors import OptionError
from bucketline.state.store.storage.hdfs_client import HDFS_SCHEMES
from bucketline.state.store.storage.hdfs_io import hdfs_io_for
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.storage.objects.object_io import object_io_for
from bucketline.state.store.storage.objects.object_store import OBJECT_SCHEMES
from bucketline.state.store.storage.wrapped_io import Inner

_SCHEMES = OBJECT_SCHEMES | HDFS_SCHEMES


def plain_io(uri: str, options: Mapping[str, str]) -> tuple[Inner, str]:
    """As `file_io_for`, for storage options that have been checked."""
    scheme, separator, rest = uri.partition(":")
    if not separator or "/" in scheme:
        return LocalIO(), LocalIO.absolute(uri)
    scheme = scheme.lower()
    if scheme == "file":
        path = rest.removeprefix("//") if rest.startswith("///") else rest
        if not path.startswith("/") or path.startswith("//"):
            raise OptionError(f"{uri}: a file URI names an absolute path, as in file:/data/warehouse", uri=uri)
        return LocalIO(), LocalIO.absolute(path)
    if scheme in OBJECT_SCHEMES:
        return object_io_for(f"{scheme}:{rest}", options)
    if scheme in HDFS_SCHEMES:
        return hdfs_io_for(f"{scheme}:{rest}", options)
    raise OptionError(
        f"{uri}: there is no storage for the scheme '{scheme}'; known are file, {', '.join(sorted(_SCHEMES))}",
        uri=uri,
        scheme=scheme,
    )
