"""A compaction plan: items that any number of processes may work on, each on one bucket, and the results of items."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from bucketline.state.commit.replay import compactor_user
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.paths import POSTPONE_BUCKET


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file that an item takes away, at the level where it lies."""

    name: str
    level: int
    size_bytes: int

    @staticmethod
    def of(file: DataFileMeta) -> "InputFile":
        return InputFile(file.file_name, file.level, file.file_size)


@dataclass(frozen=True, slots=True)
class Item:
    """One compaction of one bucket; `number` counts the items of a plan from 0.

    `total_buckets` is what the bucket's files record. With `file_rewrite` each file is rewritten alone. `vector_files`
    are the index files that held the bucket's deletion vectors when it was planned.

    An item of the postpone bucket moves the rows that wait there to the real buckets of their partition, and compacts
    these buckets: if a compaction is due, or fully if `output_level` is not 0. `total_buckets` is how many real buckets
    there were, 0 if there was none yet.
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
        """Whether the item moves rows out of the postpone bucket."""
        return self.bucket == POSTPONE_BUCKET


@dataclass(frozen=True, slots=True)
class Plan:
    """Items planned together on snapshot `base_snapshot` with schema `schema_id`; it never changes.

    `plan_id` is a UUID, `strategy` is what chose the items, `made_ms` is when, by the planner's clock.
    """

    plan_id: str
    base_snapshot: int
    schema_id: int
    strategy: str
    made_ms: int
    items: tuple[Item, ...]

    @property
    def user(self) -> str:
        """Returns the commit user of all commits of the plan. The commit identifier of an item's commit is the number
        of the item.
        """
        return compactor_user(self.plan_id)


class ItemState(Enum):
    """The state of an item. The last three are final."""

    REQUESTED = "requested"
    LEASED = "leased"
    DONE = "done"
    FAILED = "failed"
    OBSOLETE = "obsolete"


@dataclass(frozen=True, slots=True)
class ItemResult:
    """The result of an item. `snapshot_id` is the snapshot of its commit; `reason` says why there is no commit."""

    state: ItemState
    snapshot_id: int | None = None
    reason: str | None = None


def executors_worth_having(items: Sequence[Item]) -> int:
    """Returns how many workers finish the items about as soon as any larger number: the largest item sets the limit."""
    sizes = sorted((max(1, i.input_bytes) for i in items), reverse=True)
    if not sizes:
        return 0
    count = max(1, -(-sum(sizes) // sizes[0]))
    while count < len(sizes) and 10 * _longest(sizes, count) > 11 * sizes[0]:
        count += 1
    return count


def _longest(sizes: Sequence[int], workers: int) -> int:
    """Returns the bytes of the busiest worker, when each item goes to the worker that has the fewest bytes so far."""
    loads = [0] * workers
    for size in sizes:
        loads[loads.index(min(loads))] += size
    return max(loads)
