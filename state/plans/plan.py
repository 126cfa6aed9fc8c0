"""A compaction plan and the results of its items. Each item is the compaction of one bucket, and any number of
processes may work on the items.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from bucketline.state.commit.replay import compactor_user
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.paths import POSTPONE_BUCKET


@dataclass(frozen=True, slots=True)
class InputFile:
    """A data file that a planned compaction takes as input, and the file's level."""

    name: str
    level: int
    size_bytes: int

    @staticmethod
    def of(file: DataFileMeta) -> "InputFile":
        return InputFile(file.file_name, file.level, file.file_size)


@dataclass(frozen=True, slots=True)
class Item:
    """One compaction of one bucket. The items of a plan are numbered from 0.

    - `total_buckets` is the number of buckets that the bucket's files record.
    - If `file_rewrite` is true, each file is rewritten by itself.
    - `vector_files` are the index files that had the bucket's deletion vectors when the item was planned.

    An item of a postpone bucket moves the rows of this bucket to the real buckets of the partition, and then compacts
    real buckets. If `output_level` is 0, it compacts the real buckets that need a compaction; otherwise it compacts all
    real buckets fully. The item's `total_buckets` is the number of real buckets, or 0 if there were no real buckets
    yet.
    """

    number: int
    partition: bytes
    bucket: int
    total_buckets: int
    inputs: tuple[InputFile, ...]
    output_level: int
    file_rewrite: bool = False
    vector_files: tuple[str, ...] = ()

    @property
    def place(self) -> tuple[bytes, int]:
        return self.partition, self.bucket

    @property
    def input_bytes(self) -> int:
        return sum(f.size_bytes for f in self.inputs)

    @property
    def moves_rows(self) -> bool:
        """Returns True if this item (a planned compaction) moves rows out of the postpone bucket."""
        return self.bucket == POSTPONE_BUCKET


@dataclass(frozen=True, slots=True)
class Plan:
    """Items that were planned together, for the snapshot `base_snapshot` and the schema `schema_id`. A plan never
    changes.

    `plan_id` is a UUID, `strategy` is the strategy that chose the items, and `made_ms` is the time of planning by the
    planner's clock.
    """

    plan_id: str
    base_snapshot: int
    schema_id: int
    strategy: str
    made_ms: int
    items: tuple[Item, ...]

    @property
    def user(self) -> str:
        """Returns the commit user for all commits of the plan. Each item of the plan (the compaction of one bucket) is
        committed with the item's number as commit identifier.
        """
        return compactor_user(self.plan_id)


class ItemState(Enum):
    """The possible states of an item of a plan. The last three are final."""

    REQUESTED = "requested"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    OBSOLETE = "obsolete"


@dataclass(frozen=True, slots=True)
class ItemResult:
    """The result of one item (the compaction of one bucket) of a compaction plan. `snapshot_id` is the id of the
    snapshot that the item committed; None if the item has made no commit, and `reason` then says why.
    """

    state: ItemState
    snapshot_id: int | None = None
    reason: str | None = None


def executors_worth_having(items: Sequence[Item]) -> int:
    """Returns the number of workers above which the items (planned compactions) would not be finished much earlier.
    The largest item limits this number.
    """
    sizes = sorted((max(1, i.input_bytes) for i in items), reverse=True)
    if not sizes:
        return 0
    count = max(1, -(-sum(sizes) // sizes[0]))
    while count < len(sizes) and 10 * _longest(sizes, count) > 11 * sizes[0]:
        count += 1
    return count


def _longest(sizes: Sequence[int], workers: int) -> int:
    """Distributes compactions with these sizes in bytes among workers: each compaction goes to the worker that has the
    fewest bytes so far. Returns how many bytes the worker with the most bytes gets.
    """
    loads = [0] * workers
    for size in sizes:
        loads[loads.index(min(loads))] += size
    return max(loads)
