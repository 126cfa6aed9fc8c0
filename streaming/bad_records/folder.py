"""Bad records in a folder: one Parquet file for each batch, named by the writer and the batch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from bucketline.state.store.storage.file_io import file_io_for
from bucketline.streaming.bad_records.place import Rejects
from bucketline.streaming.bad_records.runs import is_begun, note_batch

_MANY_TABLES = 3


def folder_name(table: str) -> str:
    """Returns a table's name with only the letters that a folder's name may have."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in table.rpartition("://")[2])


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder for bad records, on any storage. `storage` holds the options to reach the storage."""

    path: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.path

    def prepare(self) -> None:
        """Does nothing: the folder is created with its first file."""

    def put(self, rejects: Rejects) -> str:
        """Stores the bad records of a batch; see `BadRecordsPlace.put`. Returns the path of the last file with bad
        records, or of the folder if no file has any.
        """
        where, known = self.path, self._known(rejects)
        for batch, rows in rejects:
            file = f"{batch.folder or batch.user}/batch-{batch.batch_id}.parquet"
            if rows.num_rows:
                where = f"{self.path.rstrip('/')}/{file}"
            if rows.num_rows or ((known is None or batch.folder in known) and is_begun(self.path, batch)):
                self._replace(file, rows)
            note_batch(self.path, batch)
        return where

    def _known(self, rejects: Rejects) -> frozenset[str] | None:
        """Lists the writer's folder, and returns the folders of tables in it. Returns None without a listing if the
        batch has few tables, or no file of an earlier attempt can be there.

        Listing costs one request, and looking for the files of hundreds of tables costs hundreds of requests.
        """
        folders = {batch.folder for batch, _ in rejects}
        if len(folders) < _MANY_TABLES or not any(is_begun(self.path, batch) for batch, _ in rejects):
            return None
        io, root = file_io_for(self.path, self.storage)
        user = rejects[0][0].user
        return frozenset(f"{user}/{name}" for name in io.list_names(f"{root}/{user}"))

    def _replace(self, file: str, rows: pa.Table) -> None:
        io, root = file_io_for(self.path, self.storage)
        if rows.num_rows:
            sink = pa.BufferOutputStream()
            pq.write_table(rows, sink)
            io.overwrite(f"{root}/{file}", sink.getvalue().to_pybytes())
        elif io.exists(f"{root}/{file}"):
            io.delete(f"{root}/{file}")
