"""Files put aside under another name in the same folder, so that they can come back.

Orphan removal puts a file aside before it looks for the last time whether a snapshot names it, and a writer looks for
its files after its snapshot is published. So one of the two notices the other, whoever is stopped in between: either
of them brings the file back, or it is removed and the writer takes its snapshot back. What a crash leaves aside, the
next removal brings back or removes. Only where renaming is one step: object stores cannot do that.
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
    """The name of a file; of one that was put aside, the name it had."""
    return _own_name(file.path.rpartition("/")[2])


def is_aside(file: FileInfo) -> bool:
    """Whether the file was put aside, by a removal that crashed or is under way."""
    return file.path.rpartition("/")[2] != own_name(file)


def place_aside(io: FileIO, file: FileInfo, world: World) -> FileInfo:
    """The file under a new name, to be put aside there; as it is where storage cannot rename in one step."""
    if not isinstance(bare(io), HasFolders):
        return file
    folder = file.path.rpartition("/")[0]
    return replace(file, path=f"{folder}/.{own_name(file)}.{world.ids.new_uuid()}.orphan")


def put_aside(io: FileIO, file: FileInfo, place: FileInfo) -> bool:
    """Whether the file is under its new name now, or stays as it is; False when it is gone."""
    return not isinstance(disk := bare(io), HasFolders) or place is file or disk.move(file.path, place.path)


def bring_back(io: FileIO, file: FileInfo) -> None:
    """Gives a file that was put aside its own name again; one that is gone, or was not, stays as it is."""
    disk = bare(io)
    if isinstance(disk, HasFolders) and is_aside(file):
        disk.move(file.path, f"{file.path.rpartition('/')[0]}/{own_name(file)}")


def bring_back_path(io: FileIO, path: str) -> bool:
    """Gives the file of that path its name again; whether it was aside. Lists its folder."""
    disk = bare(io)
    if not isinstance(disk, HasFolders):
        return False
    folder, _, name = path.rpartition("/")
    aside = [n for n in io.list_names(folder) if _own_name(n) == name != n]
    return any([disk.move(f"{folder}/{n}", path) for n in aside])


def _own_name(name: str) -> str:
    match = _ASIDE.fullmatch(name)
    return name if match is None else match["name"]
