"""Hides files under another name in the same folder, so that they can be brought back.

The removal of orphan files hides a file before it checks for the last time whether a snapshot names the file. A writer
looks for its files after it has published its snapshot. So even if one of the two processes is paused for long, one of
them notices the other: either the file is brought back, or the file is removed and the writer withdraws its snapshot.
If a removal dies, the next removal brings its hidden files back or removes them. Hiding needs storage that renames in
one step, which object stores cannot do.
"""

import re
from dataclasses import replace

from bucketline.state.determinism import World
from bucketline.state.store.storage.file_info import FileInfo
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.storage.folders import HasFolders
from bucketline.state.store.storage.wrapped_io import bare

_ASIDE = re.compile(r"\.(?P<name>.+)\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.orphan")


def own_name(file: FileInfo) -> str:
    """Returns the name of a file; for a hidden file, the name that it had before."""
    return _own_name(file.path.rpartition("/")[2])


def is_aside(file: FileInfo) -> bool:
    """Returns True if the file was hidden by a removal that is running or has died."""
    return file.path.rpartition("/")[2] != own_name(file)


def place_aside(io: FileIO, file: FileInfo, world: World) -> FileInfo:
    """Chooses a new name under which a file can be hidden in its folder. Returns `file` with this name in its path; the
    file itself is not renamed here. If the storage cannot rename in one step, returns `file` unchanged.
    """
    if not isinstance(bare(io), HasFolders):
        return file
    folder = file.path.rpartition("/")[0]
    return replace(file, path=f"{folder}/.{own_name(file)}.{world.ids.new_uuid()}.orphan")


def put_aside(io: FileIO, file: FileInfo, place: FileInfo) -> bool:
    """Hides the file under the name of `place`; returns False if the file no longer exists. If the storage cannot
    rename in one step, the file keeps its name, and the result is True.
    """
    return not isinstance(disk := bare(io), HasFolders) or place is file or disk.move(file.path, place.path)


def bring_back(io: FileIO, file: FileInfo) -> None:
    """Gives a hidden file its own name again. Does nothing if the file is not hidden, or no longer exists."""
    disk = bare(io)
    if isinstance(disk, HasFolders) and is_aside(file):
        disk.move(file.path, f"{file.path.rpartition('/')[0]}/{own_name(file)}")


def bring_back_path(io: FileIO, path: str) -> bool:
    """The removal of orphan files hides a file by giving it another name in the same folder. If the file at `path` is
    hidden, gives the file its own name again, and returns True; otherwise returns False. Lists the folder.
    """
    disk = bare(io)
    if not isinstance(disk, HasFolders):
        return False
    folder, _, name = path.rpartition("/")
    aside = [n for n in io.list_names(folder) if _own_name(n) == name != n]
    return any([disk.move(f"{folder}/{n}", path) for n in aside])


def _own_name(name: str) -> str:
    match = _ASIDE.fullmatch(name)
    return name if match is None else match["name"]
