"""The map side of a write to many buckets. Accepted rows are divided into groups (buckets, or shares of the keys),
and each group belongs to one task of the next stage. After each flush, the rows are turned into one sealed run
(sorted, packed rows) for each of these tasks.

Sorting, packing and sending a run has a cost that does not depend on its size. So all rows of a flush are sorted at
once: by group, and inside a group by key, as `sealed_runs` sorts the rows of one group.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa

from bucketline.state.lsm.merge.feeds import Feeds, FeedSpans, first_mixed, mixed_key
from bucketline.state.lsm.merge.fold import Selection
from bucketline.state.store.write.owned.owner_runs import (
    SHARED_BYTES,
    OwnerRun,
    RunPart,
    batches_of,
    parts_of_runs,
    pieces_of,
    sealed_batches,
)
from bucketline.state.store.write.sealed_runs import (
    BLOB_BYTES,
    BLOB_ROWS,
    Groups,
    Sealer,
    SealPlan,
    columns_of_runs,
    has_all_values,
)
from bucketline.state.types.arrow import SEQUENCE, VALUE_KIND
from bucketline.state.types.order import key_changes, sort_indices


class Owners(Protocol):
    """Decides which task gets the rows of a group. A group is a bucket, or a share of the keys (the keys that one task
    owns, by their hash).
    """

    def task(self, partition: bytes, bucket: int) -> int: ...


class OwnerSealer(Sealer[OwnerRun]):
    """Seals rows into runs (sorted rows, packed for the task that writes them), like `RunSealer`. Here a run does not
    hold a single group: it holds the rows of all groups that go to one task, the owner of these groups.
    """

    def __init__(self, plan: SealPlan, owners: Owners, *, origin: int) -> None:
        super().__init__(plan, origin=origin)
        self._owners = owners

    def _seal(self, rows: pa.Table, kinds: pa.Array, feeds: Feeds | None) -> Iterator[OwnerRun]:
        plan, groups = self._plan, self._grouped(rows)
        owners = [self._owners.task(*group_id) for group_id in groups.ids]
        ordered = sorted(range(len(owners)), key=lambda i: (owners[i], groups.ids[i]))
        rows = columns_of_runs(rows, plan)
        places, ranks = _places_and_ranks(groups, ordered)
        order = self._ordered(rows, kinds, feeds, places)
        counts = np.bincount(places[order], minlength=len(ordered)).tolist()
        spans = [b""] * len(ordered) if feeds is None else _spans(groups, feeds)
        row_bytes = max(1, rows.nbytes // rows.num_rows)
        first = place = 0
        while place < len(ordered):
            owner, of_owner = owners[ordered[place]], list[tuple[int, int]]()
            while place < len(ordered) and owners[ordered[place]] == owner:
                of_owner.append((ordered[place], counts[place]))
                place += 1
            for parts in parts_of_runs(of_owner, max(1, plan.run_bytes // row_bytes)):
                chosen = order[first : first + sum(part.row_count for part in parts)]
                first += len(chosen)
                run_rows = rows.take(pa.array(chosen))
                run_rows = run_rows.append_column(SEQUENCE, pa.array(ranks[chosen]))
                run_rows = run_rows.append_column(VALUE_KIND, kinds.take(pa.array(chosen)))
                yield self._run(owner, run_rows, parts, groups, spans)

    def _ordered(self, rows: pa.Table, kinds: pa.Array, feeds: Feeds | None, places: np.ndarray) -> np.ndarray:
        """Returns the positions of the rows to send, group after group (a group is a bucket or a share of the keys).
        Inside a group the rows are sorted by key, or in order of arrival if the plan does not sort. `places` holds
        for each row the place of its group in this order.
        """
        plan = self._plan
        keys = plan.schema.trimmed_primary_key
        if not keys or plan.keep_order:
            return np.argsort(places, kind="stable")
        sort_columns = rows.select(list(dict.fromkeys((*keys, *plan.sequence_fields))))
        direction: Literal["ascending", "descending"] = "descending" if plan.sequence_descending else "ascending"
        by_key = np.asarray(sort_indices(sort_columns, keys, then=[(c, direction) for c in plan.sequence_fields]))
        order = by_key[np.argsort(places[by_key], kind="stable")]
        if not isinstance(plan.fold, Selection) or not has_all_values(rows, plan):
            # Rows that lack values get the values from earlier rows of their key, so no row is folded away before that.
            return order
        starts = key_changes(sort_columns.select(list(keys)).take(pa.array(order)), keys)
        of_rows = places[order]
        starts[1:] |= of_rows[1:] != of_rows[:-1]
        if feeds is not None and self.mixed is None:
            of_rows = feeds[order]
            at = first_mixed(of_rows, starts)
            if at is not None:
                pair = int(of_rows[at - 1]), int(of_rows[at])
                self.mixed = mixed_key(rows, int(order[at]), plan.schema.primary_keys, pair)
        return order[plan.fold.select(starts, np.asarray(kinds)[order])]

    def _run(
        self, owner: int, rows: pa.Table, parts: Sequence[RunPart], groups: Groups, spans: Sequence[bytes]
    ) -> OwnerRun:
        row_bytes = max(1, rows.nbytes // rows.num_rows)
        shared, most = max(1, SHARED_BYTES // row_bytes), max(1, min(BLOB_ROWS, BLOB_BYTES // row_bytes))
        sizes, places = batches_of([part.row_count for part in parts], shared, most)
        pieces = list[tuple[object, ...]]()
        for part, place in zip(parts, places, strict=True):
            i = part.group
            accepted = int(groups.borders[i + 1] - groups.borders[i])
            consumed, rank_end = accepted if part.begins else 0, groups.starts[i] + accepted
            at = place.batch, place.first_row, place.is_alone
            count = part.row_count
            pieces.append((*groups.ids[i], consumed, rank_end, count, count * row_bytes, *at, spans[i]))
        blob = sealed_batches(rows, sizes, self._plan.form)
        self._flush += 1
        return OwnerRun(owner, self._origin, self._flush - 1, pieces_of(pieces), blob)


def _places_and_ranks(groups: Groups, ordered: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns two arrays with one number for each row. The first is the position of the row's group (bucket or group of
    keys) in `ordered`, as 16-bit integers if all positions fit. The second is the arrival rank of the row in its group.
    """
    count = len(groups.by_group)
    sizes = np.diff(groups.borders)
    place_of_group = np.empty(len(ordered), np.uint16 if len(ordered) <= 1 << 16 else np.int64)
    place_of_group[np.array(ordered)] = np.arange(len(ordered))
    places, ranks = np.empty(count, place_of_group.dtype), np.empty(count, np.int64)
    places[groups.by_group] = np.repeat(place_of_group, sizes)
    ranks[groups.by_group] = np.arange(count) + np.repeat(np.array(groups.starts) - groups.borders[:-1], sizes)
    return places, ranks


def _spans(groups: Groups, feeds: Feeds) -> list[bytes]:
    """Returns for each group of rows (the rows of one bucket, or of the keys that one task owns) from which feed (topic
    partition) each row came. The result is a `FeedSpans` as bytes, in which rows are numbered in order of arrival.
    """
    feeds = feeds[groups.by_group]
    found = list[bytes]()
    for i, start in enumerate(groups.starts):
        found.append(FeedSpans.of(feeds[groups.borders[i] : groups.borders[i + 1]], start).to_bytes())
    return found
