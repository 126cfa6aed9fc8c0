"""Puts files aside under another name in the same folder, so that they can be brought back.

Orphan removal puts a file aside before it checks for the last time whether a snapshot names it, and a writer looks for
its files after its snapshot is published. So one of the two notices the other, whichever is paused in between: either
the file is brought back, or it is removed and the writer takes its snapshot back. Files that a crash leaves aside are
brought back or removed by the next removal. This needs renaming in one step, which object stores do not have.
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
    """Returns the name of a file; for a file that was put aside, its former name."""
    return _own_name(file.path.rpartition("/")[2])


def is_aside(file: FileInfo) -> bool:
    """Whether the file was put aside, by a removal that crashed or is under way."""
    return file.path.rpartition("/")[2] != own_name(file)


def place_aside(io: FileIO, file: FileInfo, world: World) -> FileInfo:
    """Returns the file under a new name, under which it can be put aside; unchanged if storage cannot rename in one
    step.
    """
    if not isinstance(bare(io), HasFolders):
        return file
    folder = file.path.rpartition("/")[0]
    return replace(file, path=f"{folder}/.{own_name(file)}.{world.ids.new_uuid()}.orphan")


def put_aside(io: FileIO, file: FileInfo, place: FileInfo) -> bool:
    """Puts the file aside; returns False if it no longer exists. If storage cannot rename in one step, the file keeps
    its name.
    """
    return not isinstance(disk := bare(io), HasFolders) or place is file or disk.move(file.path, place.path)


def bring_back(io: FileIO, file: FileInfo) -> None:
    """Gives a file that was put aside its own name again; does nothing if it was not put aside, or no longer exists."""
    disk = bare(io)
    if isinstance(disk, HasFolders) and is_aside(file):
        disk.move(file.path, f"{file.path.rpartition('/')[0]}/{own_name(file)}")


def bring_back_path(io: FileIO, path: str) -> bool:
    """Gives the file with that path its name again, and returns whether it was aside. Lists the folder."""
    disk = bare(io)
    if not isinstance(disk, HasFolders):
        return False
    folder, _, name = path.rpartition("/")
    aside = [n for n in io.list_names(folder) if _own_name(n) == name != n]
    return any([disk.move(f"{folder}/{n}", path) for n in aside])


def _own_name(name: str) -> str:
    match = _ASIDE.fullmatch(name)
    return name if match is None else match["name"]
