"""Turns errors of the operating system into StorageError, which says what happened, to which file, and what to do."""

import errno
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from bucketline.state.errors import StorageError

T = TypeVar("T")

_FINAL = frozenset(
    {
        errno.ENOENT,
        errno.EEXIST,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.EFBIG,
        errno.EISDIR,
        errno.ENOTDIR,
        errno.ENAMETOOLONG,
        errno.EOPNOTSUPP,
        errno.EXDEV,
    }
)
"""The error numbers for which trying again does not help."""

_EXPLAINED = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space, or raise the quota",
    errno.EFBIG: "the file would be larger than this system lets files be; see `ulimit -f`",
    errno.EMFILE: "this process has too many open files; raise the limit, see `ulimit -n`",
    errno.ENFILE: "this machine has too many open files; raise the limit, see `fs.file-max`",
    errno.EROFS: "the file system is read-only; mount it for writing, or name another folder",
    errno.EACCES: "permission denied; let this user read and write the folder",
}

_TEXTS = {
    "no space left": errno.ENOSPC,
    "quota exceeded": errno.EDQUOT,
    "file too large": errno.EFBIG,
    "too many open files in system": errno.ENFILE,
    "too many open files": errno.EMFILE,
    "read-only file system": errno.EROFS,
    "permission denied": errno.EACCES,
}
"""Maps the messages of the operating system to error numbers, because some libraries pass on only the message."""


def storage_error(
    path: str, error: OSError, *, remedy: str = "", retryable: bool | None = None, published: bool | None = None
) -> StorageError:
    """Returns the error as a StorageError that names the path. `remedy` is added at the end of the message.

    If `retryable` is None, the number of the error decides whether another attempt may help. `published` is False if
    the file was certainly not published.
    """
    said = _EXPLAINED.get(error.errno or 0) or error.strerror or str(error)
    return StorageError(
        f"{path}: {said}{remedy}",
        path=path,
        retryable=error.errno not in _FINAL if retryable is None else retryable,
        missing=isinstance(error, FileNotFoundError),
        published=published,
    )


def unless_missing(ask: Callable[[str], T], path: str) -> T | None:
    """Returns what `ask` returns for the path of a file; None if the file does not exist."""
    try:
        return ask(path)
    except StorageError as e:
        if e.missing:
            return None
        raise


def disk_error(error: Exception) -> OSError | None:
    """Returns the error as an OSError if its number or its message says one of the problems of `_EXPLAINED`, such as a
    full disk; None for any other error.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error if error.errno in _EXPLAINED else None
    text = str(error)
    lowered = text.lower()
    number = next((n for said, n in _TEXTS.items() if said in lowered), None)
    return None if number is None else OSError(number, text)


@contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Turns OSErrors of the `with` block, from any library, into StorageErrors that name the path."""
    try:
        yield
    except OSError as e:
        raise storage_error(path, e) from e


def exists_already(path: str) -> StorageError:
    """Returns the error for a file that exists although it should be new."""
    return StorageError(f"{path}: exists already", path=path, retryable=False, missing=False)


@contextmanager
def scratch_folder(prefix: str) -> Iterator[str]:
    """Gives the `with` block a temporary folder of this process, which is removed afterwards. Raises StorageError if
    the folder cannot be created.
    """
    with storage_errors(tempfile.gettempdir()):
        folder = tempfile.mkdtemp(prefix=prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def local_disk(directory: str) -> Iterator[None]:
    """Turns OSErrors of the `with` block into StorageErrors as `storage_errors` does, for the local folder of spill
    files and key indexes (`local-directory`).
    """
    try:
        yield
    except OSError as e:
        raise storage_error(
            directory, e, remedy="; or set 'local-directory' to a folder on another disk", retryable=False
        ) from e
