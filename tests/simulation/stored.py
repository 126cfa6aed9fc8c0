"""The rows of a published snapshot, read from its files with the product's codecs alone, without its merge tree and
readers.

Rows of a bucket are folded in the order of their sequence numbers. What is read is remembered by its name, since no
file of a table changes.
"""

from dataclasses import dataclass, field
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

from bucketline.state.format.entries import FileKind, IndexManifestEntry, ManifestEntry, Snapshot
from bucketline.state.format.index.deletion_vector import decode_deletion_vectors
from bucketline.state.format.index.index_manifest import decode_index_manifest
from bucketline.state.format.manifest import decode_manifest, decode_manifest_list
from tests.simulation.disk import Disk
from tests.simulation.rows import INSERT, Fold, Kind, Row, State


class GoneError(AssertionError):
    """A file is missing that a snapshot names."""


@dataclass
class Stored:
    """The files of one table, as snapshots name them."""

    disk: Disk
    path: str
    kind: Kind
    _manifests: dict[str, list[ManifestEntry]] = field(default_factory=dict)
    _lists: dict[str, list[str]] = field(default_factory=dict)
    _rows: dict[str, list[tuple[int, int, Row]]] = field(default_factory=dict)
    _folders: dict[str, str] = field(default_factory=dict)
    _live: dict[tuple[str, str], dict[object, ManifestEntry]] = field(default_factory=dict)

    def live(self, snapshot: Snapshot) -> dict[object, ManifestEntry]:
        """The data files of a snapshot."""
        name = (snapshot.base_manifest_list, snapshot.delta_manifest_list)
        known = self._live.get(name)
        if known is not None:
            return known
        found: dict[object, ManifestEntry] = {}
        for manifest in [m for lists in name for m in self._list(lists)]:
            for entry in self._manifest(manifest):
                if entry.kind is FileKind.ADD:
                    if entry.identity in found:
                        raise AssertionError(f"{entry.file.file_name} is live twice in snapshot {snapshot.id}")
                    found[entry.identity] = entry
                elif found.pop(entry.identity, None) is None:
                    raise AssertionError(f"snapshot {snapshot.id} removes {entry.file.file_name}, which is not there")
        self._live[name] = found
        return found

    def names(self, snapshot: Snapshot) -> set[str]:
        """The names of the data and index files that must be there for the snapshot."""
        return {e.file.file_name for e in self.live(snapshot).values()} | {i.file_name for i in self.index(snapshot)}

    def index(self, snapshot: Snapshot) -> list[IndexManifestEntry]:
        """The index files of a snapshot."""
        if snapshot.index_manifest is None:
            return []
        return list(decode_index_manifest(self._manifest_data(snapshot.index_manifest)))

    def missing(self, snapshot: Snapshot) -> list[str]:
        """The files that a snapshot names and that are not there."""
        there = {p.rpartition("/")[2] for p in self.disk.files if p.startswith(f"{self.path}/")}
        named = (snapshot.base_manifest_list, snapshot.delta_manifest_list, snapshot.index_manifest)
        lists = [n for n in named if n is not None and n not in there]
        if lists:
            return lists
        manifests = [m for n in named[:2] if n is not None for m in self._list(n) if m not in there]
        if manifests:
            return manifests
        return sorted(self.names(snapshot) - there)

    def state(self, snapshot: Snapshot) -> State:
        """The rows of a snapshot."""
        whole: dict[Row, int] = {}
        for rows in self._buckets(snapshot):
            fold = Fold(self.kind)
            # A first row that readers see already stays the first.
            by_level = self.kind.engine == "first-row"
            for _, row_kind, row, _ in sorted(rows, key=lambda r: (by_level and r[3], r[0])):
                fold.add(row, row_kind)
            for row, count in fold.state.items():
                whole[row] = whole.get(row, 0) + count
        return whole

    def ties(self, snapshot: Snapshot) -> frozenset[object]:
        """The keys that have two rows with one sequence number, from writers at the same time. Nothing says which row
        is newer."""
        found = set()
        for rows in self._buckets(snapshot) if self.kind.key else ():
            seen: dict[tuple[object, int], tuple[int, Row]] = {}
            for number, row_kind, row, _ in rows:
                key = self.kind.key_of(row)
                if seen.setdefault((key, number), (row_kind, row)) != (row_kind, row):
                    found.add(key)
        return frozenset(found)

    def overlapping(self, snapshot: Snapshot) -> str | None:
        """The broken rules of the levels of a snapshot. The rules: above level 0 the files of a level are in order and
        share no key; a partition has one number of buckets."""
        spans: dict[tuple[bytes, int, int], list[tuple[int, int, str]]] = {}
        counts: dict[bytes, int] = {}
        for entry in self.live(snapshot).values():
            if entry.bucket >= 0 and counts.setdefault(entry.partition, entry.total_buckets) != entry.total_buckets:
                return f"a partition has {counts[entry.partition]} and {entry.total_buckets} buckets"
            if self.kind.key and entry.file.level > 0:
                ids = [row[0] for _, _, row in self._data(entry)]
                place = (entry.partition, entry.bucket, entry.file.level)
                spans.setdefault(place, []).append((min(ids), max(ids), entry.file.file_name))
        for place, files in spans.items():
            files.sort()
            for (_, end, one), (begin, _, other) in pairwise(files):
                if begin <= end:
                    return f"{one} and {other} of level {place[2]} have keys in common"
        return None

    def _buckets(self, snapshot: Snapshot) -> list[list[tuple[int, int, Row, bool]]]:
        deleted = self._deleted(snapshot)
        buckets: dict[tuple[bytes, int], list[tuple[int, int, Row, bool]]] = {}
        for entry in self.live(snapshot).values():
            gone = deleted.get(entry.file.file_name, ())
            is_new = entry.file.level == 0
            rows = [(*r, is_new) for n, r in enumerate(self._data(entry)) if n not in gone]
            buckets.setdefault((entry.partition, entry.bucket), []).extend(rows)
        return list(buckets.values())

    def _deleted(self, snapshot: Snapshot) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for entry in self.index(snapshot):
            if entry.deletion_vector_ranges:
                data = self._data_of(entry.file_name)
                for name, vector in decode_deletion_vectors(data, entry.deletion_vector_ranges).items():
                    found[name] = set(vector)
        return found

    def _data(self, entry: ManifestEntry) -> list[tuple[int, int, Row]]:
        """(sequence number, row kind, row) of each row of a data file."""
        name = entry.file.file_name
        known = self._rows.get(name)
        if known is None:
            read = pq.ParquetFile(pa.BufferReader(self._data_of(name))).read(use_threads=False)
            count = read.num_rows

            def column(of: str, otherwise: object = None) -> list[object]:
                return read[of].to_pylist() if of in read.column_names else [otherwise] * count

            rows = zip(column("id"), column("day"), column("v"), column("more"), strict=True)
            numbers, kinds = column("_SEQUENCE_NUMBER", 0), column("_VALUE_KIND", INSERT)
            known = self._rows[name] = list(zip(numbers, kinds, rows, strict=True))  # type: ignore[arg-type]
        return known

    def _data_of(self, name: str) -> bytes:
        folder = self._folders.get(name)
        if folder is None or f"{folder}/{name}" not in self.disk.files:
            for path in self.disk.files:
                place, _, found = path.rpartition("/")
                if found == name and path.startswith(f"{self.path}/"):
                    folder = self._folders[name] = place
                    break
            else:
                raise GoneError(name)
        return self.disk.files[f"{folder}/{name}"].data

    def _list(self, name: str) -> list[str]:
        known = self._lists.get(name)
        if known is None:
            found = decode_manifest_list(self._manifest_data(name))
            known = self._lists[name] = [m.file_name for m in found]
        return known

    def _manifest(self, name: str) -> list[ManifestEntry]:
        known = self._manifests.get(name)
        if known is None:
            known = self._manifests[name] = list(decode_manifest(self._manifest_data(name)))
        return known

    def _manifest_data(self, name: str) -> bytes:
        found = self.disk.files.get(f"{self.path}/manifest/{name}")
        if found is None:
            raise GoneError(name)
        return found.data
