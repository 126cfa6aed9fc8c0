"""Snapshots of other programs that change nothing but which rows of data files are deleted.

They are made as Paimon makes them: the index manifest of a snapshot is complete, a bucket's new file of deletion
vectors stands in it instead of the old one, and nothing says that the old one is gone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bucketline.state.determinism import SYSTEM_IDS, SYSTEM_WORLD
from bucketline.state.format.entries import BATCH_COMMIT_IDENTIFIER, CommitKind, IndexManifestEntry, Snapshot
from bucketline.state.format.index.deletion_vector import DELETION_VECTORS
from bucketline.state.store.read.bucket_deletions import deletion_entries, load_deletions
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.table.table import Table, handle_of, open_table


def newest(table: Table) -> Snapshot:
    """The newest snapshot, whoever made it."""
    found = handle_of(open_table(table.path)).snapshot_store.latest()
    assert found is not None
    return found


def mark_rows(table: Table, rows: Mapping[str, Sequence[int]], *, kind: CommitKind = CommitKind.COMPACT) -> None:
    """Another program deletes rows of live data files, by file name and position."""
    before = newest(table)
    handle = handle_of(table)
    index = handle.manifests.read_index(before.index_manifest)
    access = FileAccess(handle.io, handle.path, handle.table_schema, handle.schema_store.get)
    places = {e.file.file_name: (e.partition, e.bucket) for e in handle.manifests.live_entries(before)}
    for place in sorted({places[name] for name in rows}):
        marks = load_deletions(access, deletion_entries(index).get(place, ()))
        for name, positions in rows.items():
            if places[name] == place:
                marks.delete(name, np.array(positions))
        others = [e for e in index if e.index_type != DELETION_VECTORS or (e.partition, e.bucket) != place]
        index = [*others, marks.write(handle.io, handle.path, place, schema=handle.table_schema, world=SYSTEM_WORLD)]
    _publish(table, before, index, kind)


def forget_marks(table: Table) -> None:
    """Another program drops all deletion vectors: the rows that they marked are there again."""
    before = newest(table)
    index = handle_of(table).manifests.read_index(before.index_manifest)
    _publish(table, before, [e for e in index if e.index_type != DELETION_VECTORS], CommitKind.COMPACT)


def _publish(table: Table, before: Snapshot, index: Sequence[IndexManifestEntry], kind: CommitKind) -> None:
    manifests = handle_of(table).manifests
    base, base_size = manifests.write_list(manifests.base_and_delta(before))
    delta, delta_size = manifests.write_list([])
    snapshot = replace(
        before,
        id=before.id + 1,
        commit_user="another",
        commit_identifier=BATCH_COMMIT_IDENTIFIER,
        commit_kind=kind,
        base_manifest_list=base,
        base_manifest_list_size=base_size,
        delta_manifest_list=delta,
        delta_manifest_list_size=delta_size,
        changelog_manifest_list=None,
        changelog_manifest_list_size=None,
        changelog_record_count=None,
        delta_record_count=0,
        index_manifest=manifests.write_index(index),
        uuid=SYSTEM_IDS.new_uuid(),
    )
    store = handle_of(open_table(table.path)).snapshot_store
    assert store.publish(snapshot), "nobody else makes this snapshot"
