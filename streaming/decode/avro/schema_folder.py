"""A folder of this host in which the tasks of a job store schemas for each other.

The folder is inside the system's folder for temporary files, and only the job's user can read or write it. If the
folder cannot be created, each process asks the registry itself. On the driver's host the folder is removed at the end
of the job; on other hosts a later job removes it, when it is old.
"""

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_KEPT_S = 30 * 24 * 3600


def folder_of(job: str, url: str) -> Path | None:
    """Returns the folder for the schemas that a job reads from the registry at `url`. The folder is created if it is
    missing; the result is None if it cannot be created.
    """
    name = hashlib.sha256(f"{job}\n{url}".encode()).hexdigest()[:32]
    try:
        own = _own_folder()
        folder = own / name
        if not folder.is_dir():
            _remove_old(own)
            folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    return folder


def remove_folder(job: str, url: str) -> None:
    """Removes the folder on this host that holds the schemas which the job has read from the registry at `url`. A
    missing folder is no error.
    """
    folder = folder_of(job, url)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def kept_text(folder: Path | None, name: str) -> str | None:
    """Returns the text that is stored under the name `name`; None if no text is stored."""
    if folder is None:
        return None
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return (folder / f"{name}.json").read_text(encoding="utf-8")
    return None


def keep_text(folder: Path | None, name: str, text: str) -> None:
    """Stores a text for other processes. If this fails, the other processes ask the registry themselves."""
    if folder is None:
        return
    with contextlib.suppress(OSError):
        own = folder / f"{name}.{os.getpid()}"
        own.write_text(text, encoding="utf-8")
        own.replace(folder / f"{name}.json")


@contextlib.contextmanager
def alone(folder: Path | None) -> Iterator[None]:
    """Keeps other processes of this host out of the folder until the block ends, if the system and the folder allow
    locks.
    """
    with contextlib.ExitStack() as stack:
        if folder is not None and sys.platform != "win32":
            with contextlib.suppress(OSError):
                lock = stack.enter_context((folder / "lock").open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _own_folder() -> Path:
    """Returns the folder of this user. Raises OSError if the folder belongs to another user, or others may read or
    write it.
    """
    if sys.platform == "win32":
        own = Path(tempfile.gettempdir()) / "bucketline-schemas"
        own.mkdir(exist_ok=True)
        return own
    own = Path(tempfile.gettempdir()) / f"bucketline-schemas-{os.getuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    found = own.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or not own.is_dir() or own.is_symlink():
        raise PermissionError(f"{own} belongs to another user")
    return own


def _remove_old(own: Path) -> None:
    """Removes the folders of jobs that ended long ago. (A job that has run for so long asks the registry again.)"""
    for folder in own.iterdir():
        with contextlib.suppress(OSError):
            if folder.lstat().st_mtime < time.time() - _KEPT_S:
                shutil.rmtree(folder, ignore_errors=True)
