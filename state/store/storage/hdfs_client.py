"""Finds the HDFS cluster that a URI names, and makes the client for it, through hdfs-native.

A client is made once in a process for each cluster and its settings, because it holds connections and threads.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol
from urllib.parse import urlsplit

from bucketline.conf.errors import OptionError
from bucketline.conf.storage_options import HdfsSettings, hdfs_settings
from bucketline.state.store.storage.forks import refuse_after_fork

try:
    import hdfs_native
except ImportError:
    hdfs_native = None

HDFS_SCHEMES = frozenset({"hdfs", "viewfs"})
_MODE = 0o644


@dataclass(frozen=True, slots=True, repr=False)
class HdfsAddress:
    """A cluster, and how it is reached. `url` is the scheme and host of a URI; None stands for the `fs.defaultFS` of
    the settings.
    """

    url: str | None
    settings: HdfsSettings

    def __repr__(self) -> str:
        return f"HdfsAddress({self.url!r})"


class HdfsStatus(Protocol):
    """A file or folder of a cluster."""

    path: str
    isdir: bool
    length: int
    modification_time: int


class HdfsReader(Protocol):
    """A file for reading."""

    def __len__(self) -> int: ...
    def read_range(self, offset: int, len: int) -> bytes: ...


class HdfsWriter(Protocol):
    """A file that is being written; readers see the file once it is closed."""

    def write(self, buf: Any) -> int: ...
    def close(self) -> None: ...


class HdfsClient(Protocol):
    """The methods of hdfs-native's client that are used here. Renaming happens in one step; a rename without
    `overwrite` never replaces a file.

    A missing file raises FileNotFoundError, an existing file raises FileExistsError. Other errors are an OSError or a
    RuntimeError.
    """

    def get_file_info(self, path: str) -> HdfsStatus: ...
    def list_status(self, path: str) -> Iterator[HdfsStatus]: ...
    def read(self, path: str) -> HdfsReader: ...
    def create(self, path: str) -> HdfsWriter: ...
    def mkdirs(self, path: str) -> None: ...
    def rename(self, src: str, dst: str, overwrite: bool) -> None: ...
    def delete(self, path: str, recursive: bool) -> bool: ...


class NativeClient:
    """hdfs-native's client. Its operations on files and folders also create the parent folders."""

    def __init__(self, address: HdfsAddress) -> None:
        settings = address.settings
        self._client = hdfs_native.Client(
            address.url,
            dict(settings.hadoop),
            settings.folder,
            kerberos_principal=settings.principal,
            kerberos_keytab=settings.keytab,
        )
        self._new = hdfs_native.WriteOptions(permission=_MODE, overwrite=False, create_parent=True)

    def get_file_info(self, path: str) -> HdfsStatus:
        status: HdfsStatus = self._client.get_file_info(path)
        return status

    def list_status(self, path: str) -> Iterator[HdfsStatus]:
        statuses: Iterator[HdfsStatus] = self._client.list_status(path)
        return statuses

    def read(self, path: str) -> HdfsReader:
        reader: HdfsReader = self._client.read(path)
        return reader

    def create(self, path: str) -> HdfsWriter:
        writer: HdfsWriter = self._client.create(path, self._new)
        return writer

    def mkdirs(self, path: str) -> None:
        self._client.mkdirs(path, create_parent=True)

    def rename(self, src: str, dst: str, overwrite: bool) -> None:
        self._client.rename(src, dst, overwrite)

    def delete(self, path: str, recursive: bool) -> bool:
        return bool(self._client.delete(path, recursive))


@cache
def native_client(address: HdfsAddress) -> HdfsClient:
    """Returns the client of a cluster; a process has one client for each cluster. Sends no request.

    Raises OptionError for settings from which no client can be made.
    """
    try:
        return NativeClient(address)
    except (RuntimeError, ValueError, OSError) as e:
        where = address.url or "the default file system of Hadoop"
        raise OptionError(f"{where} cannot be opened: {_says(e)}", uri=address.url) from e


refuse_after_fork(lambda: native_client.cache_info().currsize > 0)


def hdfs_address(uri: str, storage: Mapping[str, str]) -> tuple[HdfsAddress, str]:
    """Returns the cluster that a URI names, and the path on the cluster, without a slash at its end. `hdfs:///path` is
    on the default file system. `storage` are storage options that have been checked.

    Raises OptionError for a URI that names a user or has no path, and if hdfs-native is not installed.
    """
    parts = urlsplit(uri.partition("?")[0].partition("#")[0])
    scheme, _, rest = uri.partition(":")
    if hdfs_native is None:
        raise OptionError(
            f"{uri}: tables on HDFS need the package hdfs-native: install bucketline[hdfs]", uri=uri, scheme=scheme
        )
    place, _, path = rest.removeprefix("//").partition("/")
    if not rest.startswith("//") or not path.strip("/"):
        raise OptionError(f"{uri} names no folder; write it as {scheme}://cluster/warehouse/shop.db/t", uri=uri)
    if parts.username is not None:
        raise OptionError(f"{uri}: a URI of HDFS cannot name a user; set HADOOP_USER_NAME in the environment", uri=uri)
    address = HdfsAddress(f"{scheme}://{place}" if place else None, hdfs_settings(storage))
    return address, f"/{path.strip('/')}"


def _says(error: Exception) -> str:
    """Returns the message of an error of hdfs-native, without the name of the error."""
    text = str(error).partition("\n")[0]
    return text.partition('("')[2].removesuffix('")') or text
