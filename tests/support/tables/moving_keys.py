"""Tables whose keys move between partitions, written row by row of a test: what the key index is judged on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from bucketline.state.bucket.allocation import AllocationRule, Ownership
from bucketline.state.bucket.key_entries import NOTE_PROPERTY
from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from bucketline.state.determinism import SYSTEM_IDS
from bucketline.state.format.data_file import FileSource
from bucketline.state.format.entries import CommitKind, ManifestEntry, Snapshot
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.key_index.catch_up import IndexSource
from bucketline.state.store.key_index.key_index import KeyIndex
from bucketline.state.store.key_index.note import write_note
from bucketline.state.store.key_index.table_keys import KeyShare
from bucketline.state.store.read.prune import group_by_bucket
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.table.table import Table, handle_of, open_table
from bucketline.state.store.write.cross.key_assign import PlacedBatch, place_batch
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND
from bucketline.state.types.logical import DataField, parse_type_text
from bucketline.state.types.order import key_changes, sort_indices
from tests.support.tables.commit_table import Commits

Row = tuple[int, str, int, int]
"""(id, partition, value, row kind)."""


@dataclass
class MovingKeys:
    """A table `id INT, pt STRING, v INT` with primary key id, partitioned by pt."""

    path: Path
    options: Mapping[str, str] = field(default_factory=dict)
    target_rows: int = 3

    def __post_init__(self) -> None:
        texts = {"id": "INT NOT NULL", "pt": "STRING", "v": "INT"}
        fields = tuple(DataField(i, name, parse_type_text(text)) for i, (name, text) in enumerate(texts.items()))
        schema = TableSchema(0, fields, 2, ("pt",), ("id",), {"bucket": "-1", **self.options})
        io, path = file_io_for(str(self.path), {})
        assert Schemas(io, path).create(schema)
        self.table: Table = open_table(str(self.path))
        self._sequences: dict[tuple[bytes, int], int] = {}
        self._identifier = 0

    @property
    def source(self) -> IndexSource:
        table = self.table
        access = BucketAccess(str(self.path), handle_of(table).table_schema)
        return IndexSource(access.files, handle_of(table).manifests, handle_of(table).snapshot_store)

    def latest(self) -> Snapshot | None:
        return handle_of(self.table).snapshot_store.latest()

    def keys(self, share: int = 0, shares: int = 1) -> KeyShare:
        return KeyShare(handle_of(self.table).table_schema, share, shares)

    def rows(self) -> dict[int, tuple[str, int]]:
        """What a reader sees, by id; fails when an id is there twice."""
        found = self.table.to_arrow().to_pylist()
        by_id = {r["id"]: (r["pt"], r["v"]) for r in found}
        assert len(by_id) == len(found), "a key is in two places"
        return by_id

    def write(self, rows: Sequence[Row], index: KeyIndex, *, note: bool = False) -> None:
        """Commits rows where the index says they go; the index stays as it is, with a note of the commit or without."""
        columns = list(zip(*rows, strict=True))
        types = (pa.int32(), pa.string(), pa.int32())
        data = pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=False)], names=["id", "pt", "v"])
        kinds = pa.array(columns[3], pa.int8())
        self.write_table(data, kinds, index, note=note)

    def write_table(self, data: pa.Table, kinds: pa.Array, index: KeyIndex, *, note: bool = False) -> PlacedBatch:
        """As `write`, of columns."""
        rule = AllocationRule(self.target_rows)
        placed = place_batch(index, data, kinds, self.keys(), rule=rule, own=Ownership())
        messages = []
        ready = placed.rows.append_column(VALUE_KIND, placed.kinds)
        packed = (placed.codes.astype(np.int64) << 32) | placed.buckets
        for place in np.unique(packed).tolist():
            code, bucket = divmod(place, 1 << 32)
            messages.append(self._message(placed.partitions[code], bucket, ready.filter(pa.array(packed == place))))
        token = SYSTEM_IDS.new_uuid() if note else ""
        if note:
            write_note(index, placed.keys, placed.effect, seconds=0, token=token)
        self.commit(messages, properties={NOTE_PROPERTY: f"another,{token}"} if note else {})
        return placed

    def compact(self, properties: Mapping[str, str] | None = None) -> None:
        """Rewrites every bucket to its live rows in one file of the top level."""
        entries = self.entries()
        messages = []
        access = BucketAccess(str(self.path), handle_of(self.table).table_schema)
        for place in sorted({(e.partition, e.bucket) for e in entries}):
            before = tuple(e.file for e in entries if (e.partition, e.bucket) == place)
            kept = self._newest(place, access)
            with access.writer(place, level=5, source=FileSource.COMPACT) as writer:
                if kept.num_rows:
                    writer.write(kept)
                after = tuple(writer.close())
            messages.append(CommitMessage(*place, -1, compact_before=before, compact_after=after))
        self.commit(messages, CommitKind.COMPACT, properties)

    def entries(self) -> list[ManifestEntry]:
        newest = self.latest()
        return [] if newest is None else handle_of(self.table).manifests.live_entries(newest)

    def commit(
        self,
        messages: Iterable[CommitMessage],
        kind: CommitKind = CommitKind.APPEND,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        committer = Commits(handle_of(self.table))
        self._identifier += kind is CommitKind.APPEND
        done = committer.commit(
            messages, user="test", identifier=self._identifier, kind=kind, properties=properties or {}
        )
        assert isinstance(done, Committed), done

    def _message(self, partition: bytes, bucket: int, rows: pa.Table) -> CommitMessage:
        place = (partition, bucket)
        start = self._sequences.get(place, 0)
        self._sequences[place] = start + rows.num_rows
        rows = rows.append_column(SEQUENCE, pa.array(range(start, start + rows.num_rows), pa.int64()))
        rows = _last_of_each(rows)
        access = BucketAccess(str(self.path), handle_of(self.table).table_schema)
        with access.writer(place, level=0, source=FileSource.APPEND) as writer:
            writer.write(rows)
            return CommitMessage(partition, bucket, -1, new_files=tuple(writer.close()))

    def _newest(self, place: tuple[bytes, int], access: BucketAccess) -> pa.Table:
        from_bucket = [e for e in self.entries() if (e.partition, e.bucket) == place]
        columns = ["id", "pt", "v", SEQUENCE, VALUE_KIND]
        bucket = group_by_bucket(from_bucket)[0]
        batches = [b for f in bucket.files for b in access.files.rows(bucket, f, columns)]
        rows = _last_of_each(pa.Table.from_batches(batches))
        return rows.filter(pa.array([k % 2 == 0 for k in rows[VALUE_KIND].to_pylist()]))


def _last_of_each(rows: pa.Table) -> pa.Table:
    """The row of the largest sequence number of each id, ids ascending."""
    rows = rows.take(sort_indices(rows, ["id"], then=[(SEQUENCE, "ascending")]))
    borders = key_changes(rows, ["id"])
    return rows.filter(pa.array(np.append(borders[1:], True)))
