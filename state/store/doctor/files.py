"""Checks that the files of a snapshot exist, with the recorded sizes."""

from collections.abc import Callable
from hashlib import blake2b

from bucketline.conf.errors import BucketlineError
from bucketline.conf.wording import counted
from bucketline.state.errors import StorageError
from bucketline.state.format.entries import IndexManifestEntry, ManifestEntry
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.packed_changelog import part_of
from bucketline.state.store.catalog.kept_files import data_paths, index_path, located, reraise_unless_missing
from bucketline.state.store.doctor.problem import Broken, State
from bucketline.state.store.storage.file_io import FileIO, file_io_for

_KNOWN_FILES = 1 << 20
"""How many correct files are remembered, about 100 bytes each. If there are more, all of them are forgotten, and files
are checked again.
"""


class FileChecks:
    """Checks files of the table at `path`, and records wrong files in `broken`. A file that was found correct is not
    checked again.
    """

    def __init__(
        self, io: FileIO, path: str, schema: TableSchema, schema_of: Callable[[int], TableSchema], broken: Broken
    ) -> None:
        self._io, self._path, self._schema, self._schema_of = io, path, schema, schema_of
        self.broken = broken
        self._sound: set[bytes] = set()

    def with_schemas(self, schema_of: Callable[[int], TableSchema]) -> "FileChecks":
        """Returns checks of the same files for snapshots with other schemas. The new object and this object share what
        they know: a file that one of them has found correct is not checked again.
        """
        other = FileChecks(self._io, self._path, self._schema, schema_of, self.broken)
        other._sound = self._sound
        return other

    def data_file(self, state: State, entry: ManifestEntry) -> None:
        """Checks a data file or changelog file, its extra files, and its schema."""
        file = entry.file
        try:
            path, *extra = data_paths(self._path, self._schema, entry)
        except BucketlineError as e:
            text = f"{{state}}: the partition of {file.file_name} cannot be read: {e.message}"
            self.broken.note(state, "partition", entry.partition.hex(), text, owner=entry.identity)
            return
        # The metadata has the size of the part of a packed changelog file, not the size of the packed file.
        size = file.file_size if part_of(file.file_name) is None else None
        self._look(state, path, size, "{state} needs it", entry.identity)
        for other in extra:
            self._look(state, other, None, "{state} needs this file together with a data file", entry.identity)
        try:
            self._schema_of(file.schema_id)
        except BucketlineError as e:
            if isinstance(e, StorageError):
                reraise_unless_missing(e)
            text = f"it was written under schema {file.schema_id}, which cannot be read"
            self.broken.note(state, "missing-schema", path, text, owner=entry.identity)

    def index_file(self, state: State, entry: IndexManifestEntry) -> None:
        """Checks an index file."""
        try:
            path = located(self._path, index_path(self._schema, entry))
        except BucketlineError as e:
            text = f"{{state}}: the partition of {entry.file_name} cannot be read: {e.message}"
            self.broken.note(state, "partition", entry.partition.hex(), text, owner=entry.file_name)
            return
        self._look(state, path, entry.file_size, f"{{state}} needs this {entry.index_type} index", entry.file_name)

    def _look(self, state: State, path: str, size: int | None, text: str, owner: object) -> None:
        mark = blake2b(f"{size} {path}".encode(), digest_size=8).digest()
        if mark in self._sound:
            return
        actual_size = self._size(path)
        if actual_size is None:
            self.broken.note(state, "missing-file", path, text, owner=owner)
        elif size is not None and actual_size != size:
            text = f"it has {counted(actual_size, 'byte')}, but should have {size}: {text}"
            self.broken.note(state, "file-size", path, text, owner=owner)
        else:
            if len(self._sound) >= _KNOWN_FILES:
                self._sound.clear()
            self._sound.add(mark)

    def _size(self, path: str) -> int | None:
        """Returns the size of a file in bytes; None if it is missing."""
        try:
            io = self._io
            if not path.startswith(f"{self._path}/"):
                io, path = file_io_for(path, self._schema.storage)
            return io.size(path)
        except StorageError as e:
            reraise_unless_missing(e)
            return None
