"""Records to which table, to which share of the table's keys and to which snapshot a key index belongs. The table, the
share and the snapshot decide whether a job can use the index.
"""

import hashlib
from dataclasses import dataclass

from bucketline.state.format.entries import Snapshot


@dataclass(frozen=True, slots=True)
class IndexScope:
    """What a key index belongs to.

    - `table` is the path of the table.
    - `columns` are the key columns and the partition columns of the table, as one string.
    - `shard` and `shards` say which keys the index has: the keys are divided by their hash into `shards` parts, and the
      index has part number `shard`, counted from 0.
    """

    table: str
    columns: str
    shard: int
    shards: int

    def directory(self, root: str) -> str:
        """Returns the folder of this index below `root`. Each table, key and number of shares has its own folder."""
        name = hashlib.sha256(f"{self.table}\n{self.columns}".encode()).hexdigest()[:24]
        return f"{root}/key-index/{name}/shard-{self.shard}-of-{self.shards}"


@dataclass(frozen=True, slots=True)
class IndexLabel:
    """The snapshot that an index reflects; the id 0 stands for a table without snapshots. An id alone is not enough,
    because ids repeat when a table is rolled back or created again. So `name` contains the name of the snapshot's delta
    manifest list, which no other snapshot of any table has.
    """

    snapshot_id: int = 0
    name: str = ""

    @property
    def list_name(self) -> str:
        """Returns the name of the snapshot's delta manifest list."""
        return self.name.partition(" ")[0]


def label_of(snapshot: Snapshot | None) -> IndexLabel:
    """Returns the label for a key index that has the keys of this snapshot. The label is stored in the index, and says
    later which snapshot the index reflects. None stands for the empty table.
    """
    if snapshot is None:
        return IndexLabel()
    return IndexLabel(snapshot.id, f"{snapshot.delta_manifest_list} {snapshot.uuid or ''}")
