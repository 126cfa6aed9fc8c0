"""Reads bad records back from the folder or the table that stores them, and marks the records that a replay takes.

A replay writes records in batches, and each batch has a number. Before the replay writes a batch, it marks the records
of the batch with this number. If the replay dies in between, the next replay finds the marks and writes the same
records.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bucketline.conf.sink_options import SinkOptions
from bucketline.state.errors import CorruptFileError
from bucketline.state.store.read.table_read import ReadRequest, read_whole
from bucketline.state.store.storage.file_io import FileIO, file_io_for
from bucketline.state.store.table.write import write_table
from bucketline.state.types.if_else import if_else
from bucketline.streaming.bad_records.folder import Folder
from bucketline.streaming.bad_records.place import BadRecordsPlace
from bucketline.streaming.bad_records.rejects_table import KEY, REPLAY, RejectsTable
from bucketline.streaming.decode.rejects import REJECTS_SCHEMA, rejects_of

STORED_SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("table_name", pa.string()),
        ("batch_id", pa.int64()),
        ("input", pa.string()),
        ("number", pa.int32()),
        *REJECTS_SCHEMA,
        (REPLAY, pa.int64()),
    ]
)
"""A stored bad record: the columns of its key, then the record, then the number of the batch of a replay that has taken
the record (null before). In a folder `input` is the file, and `table_name` is the folder of a table, null for a job of
one table.
"""

_CLAIMS = "replays"
_OTHERS = -1
"""Stands in the column `replay` if a replay of another job has taken a record."""
_NUMBER_BITS = 24


class StoredRecords(Protocol):
    """Bad records that can be read back from a folder, a table or a topic."""

    def rows(self, user: str) -> pa.Table:
        """Returns all stored bad records, with the columns of STORED_SCHEMA. `user` is the commit user of a replay. The
        column `replay` has the number of the batch for which this replay has marked a record; -1 if another job has
        replayed the record; null if no replay has taken it.
        """
        ...

    def claim(self, rows: pa.Table, user: str, number: int) -> None:
        """Marks these rows as taken by the batch `number` of the replay with the commit user `user`."""
        ...


class StoredInTable:
    """The bad records in a table."""

    def __init__(self, place: RejectsTable) -> None:
        self._place = place

    def rows(self, user: str) -> pa.Table:
        found = read_whole(self._place.open(), ReadRequest(tuple(STORED_SCHEMA.names))).cast(STORED_SCHEMA)
        marks = found[REPLAY]
        # The marks of one replay's batches are consecutive numbers.
        numbers = pc.subtract(marks, _mark(user, 0))
        is_own = pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, 1 << _NUMBER_BITS))
        at = found.schema.get_field_index(REPLAY)
        taken = if_else(marks.is_valid(), _OTHERS, None)
        shown = if_else(is_own, numbers, taken).cast(pa.int64())
        return found.set_column(at, STORED_SCHEMA.field(at), shown)

    def claim(self, rows: pa.Table, user: str, number: int) -> None:
        table = self._place.open()
        ids = [pc.field(name).isin(rows[name].unique()) for name in KEY if name != "number"]
        near = read_whole(table, ReadRequest(None, ids[0] & ids[1] & ids[2] & ids[3]))
        named = near.select(list(KEY)).append_column("at", pa.array(np.arange(near.num_rows)))
        kept = near.take(named.join(rows.select(list(KEY)), list(KEY), join_type="left semi")["at"])
        column = kept.schema.get_field_index(REPLAY)
        taken = pa.repeat(pa.scalar(_mark(user, number), pa.int64()), kept.num_rows)
        write_table(table, kept.set_column(column, near.schema.field(column), taken))


class StoredInFolder:
    """The bad records in a folder. For each batch there is one file, in the writer's folder or in a table's folder
    inside the writer's folder.
    """

    def __init__(self, place: Folder) -> None:
        self._io, self._root = file_io_for(place.path, place.storage)

    def rows(self, user: str) -> pa.Table:
        claims = self._claims(user)
        parts = [self._file(file, claims.get(file, {})) for file in self._files()]
        return pa.concat_tables([STORED_SCHEMA.empty_table(), *parts])

    def claim(self, rows: pa.Table, user: str, number: int) -> None:
        taken: dict[str, list[int]] = {}
        for file, at in zip(rows["input"].to_pylist(), rows["number"].to_pylist(), strict=True):
            taken.setdefault(file, []).append(at)
        self._io.overwrite(f"{self._root}/{_CLAIMS}/{user}/{number}.json", json.dumps(taken).encode())

    def _files(self) -> list[str]:
        found = []
        for writer in sorted(self._io.list_names(self._root)):
            if writer == _CLAIMS:
                continue
            for name in sorted(self._io.list_names(f"{self._root}/{writer}")):
                if name.endswith(".parquet"):
                    found.append(f"{writer}/{name}")
                else:
                    inner = sorted(self._io.list_names(f"{self._root}/{writer}/{name}"))
                    found += [f"{writer}/{name}/{file}" for file in inner if file.endswith(".parquet")]
        return found

    def _file(self, file: str, claims: Mapping[int, int]) -> pa.Table:
        with self._io.open_input(f"{self._root}/{file}") as source:
            read = pq.read_table(source)
        given = {name: read[name] for name in read.column_names if name in REJECTS_SCHEMA.names}
        rejects = rejects_of(given, len(read))
        batch = file.rpartition("batch-")[2].removesuffix(".parquet")
        if not batch.isdigit():
            raise CorruptFileError(
                f"{self._root}/{file} is no file of bad records: its name is not batch-<number>.parquet; move it away",
                path=file,
            )
        count = len(read)
        _, *folders, _ = file.split("/")
        table = folders[0] if folders else None
        own: dict[str, Any] = {
            "query_id": pa.repeat(file.partition("/")[0], count),
            "table_name": pa.repeat(pa.scalar(table, pa.string()), count),
            "batch_id": pa.repeat(pa.scalar(int(batch), pa.int64()), count),
            "input": pa.repeat(file, count),
            "number": pa.array(np.arange(count, dtype=np.int32)),
            REPLAY: pa.array([claims.get(at) for at in range(count)], pa.int64()),
        }
        columns = [own[f.name] if f.name in own else rejects[f.name] for f in STORED_SCHEMA]
        return pa.Table.from_arrays(columns, schema=STORED_SCHEMA)

    def _claims(self, user: str) -> dict[str, dict[int, int]]:
        """Returns which records replays have taken: for each file a mapping from the position of a record in the file
        to the number of the batch that took the record. The number is -1 if a replay of another job took the record.
        """
        taken: dict[str, dict[int, int]] = {}
        for replayer in sorted(_names(self._io, f"{self._root}/{_CLAIMS}")):
            for name in sorted(_names(self._io, f"{self._root}/{_CLAIMS}/{replayer}")):
                number = int(name.removesuffix(".json")) if replayer == user else _OTHERS
                said = json.loads(self._io.read(f"{self._root}/{_CLAIMS}/{replayer}/{name}"))
                for file, numbers in said.items():
                    taken.setdefault(file, {}).update(dict.fromkeys(numbers, number))
        return taken


def _mark(user: str, number: int) -> int:
    """Returns what a table stores in the column `replay` for the batch `number` of a replay. A hash of the replay's
    commit user distinguishes the replays of several jobs.
    """
    return (zlib.crc32(user.encode()) << _NUMBER_BITS) + number


def _names(io: FileIO, directory: str) -> list[str]:
    return [name for name in io.list_names(directory) if not name.startswith(".")]


def stored_in(place: object) -> StoredRecords | None:
    """Returns the bad records that a place (folder, table or topic) stores; None if they cannot be read back without
    Kafka.
    """
    if isinstance(place, RejectsTable):
        return StoredInTable(place)
    return StoredInFolder(place) if isinstance(place, Folder) else None


def place_of(sink: SinkOptions, storage: Mapping[str, str]) -> BadRecordsPlace | None:
    """Returns the place (folder, table or topic) that the options of a sink set for bad records; None if they set none.
    `storage` holds the storage options of the table.
    """
    if sink.bad_records_table is not None:
        return RejectsTable(sink.bad_records_table, storage)
    return None if sink.bad_records_path is None else Folder(sink.bad_records_path, storage)
