"""The folder `compaction/` of a table: plans, and for each item of a plan its leases, heartbeats and result.

A branch has its own folder next to its snapshots.

There are no subfolders, so one listing shows the open items. `plan-<n>`, leases, releases and results are created only
if they do not exist, and never change. Only the owner of a lease writes the lease's heartbeat. Names contain the plan's
UUID, so a new plan with the number of a removed plan does not take over the old plan's files. A listing may be out of
date; if that matters, files are read by name.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bucketline.state.errors import CorruptFileError, StorageError
from bucketline.state.format.paths import COMPACTION_DIR
from bucketline.state.plans.lease import Claim, ItemView, Lease, Release
from bucketline.state.plans.plan import ItemResult, Plan
from bucketline.state.plans.plan_json import (
    decode_lease,
    decode_plan,
    decode_release,
    decode_result,
    encode_lease,
    encode_plan,
    encode_release,
    encode_result,
)
from bucketline.state.store.storage.file_io import FileIO

_LOG = logging.getLogger(__name__)

_PLAN = re.compile(r"plan-([1-9][0-9]*)")
_ITEM = re.compile(r"item-([0-9a-f-]{36})-([0-9]+)-(lease|beat|release|result)(?:-([1-9][0-9]*))?")


@dataclass(slots=True)
class _Listed:
    """The files of one item (the compaction of one bucket) in the folder of plans.

    - `epochs` holds numbers of leases. A lease gives the item to one compactor for some time, and has a number, the
      epoch. For each kind of file (lease, heartbeat, release) `epochs` has the epochs for which there is such a file.
    - `has_result` says whether the item has a result file.
    """

    epochs: dict[str, set[int]] = field(default_factory=lambda: {"lease": set(), "beat": set(), "release": set()})
    has_result: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """The content of the folder: the numbers of the plans in ascending order, the files of items by plan id and item
    number, and the names of these files.
    """

    plan_numbers: tuple[int, ...] = ()
    items: Mapping[tuple[str, int], _Listed] = field(default_factory=dict)
    item_names: tuple[str, ...] = ()

    def is_closed(self, plan: Plan) -> bool:
        """Returns True if all items of a compaction plan have results, according to this listing of the plan
        folder.
        """
        return all(self.has_result(plan, item.number) for item in plan.items)

    def has_result(self, plan: Plan, number: int) -> bool:
        listed = self.items.get((plan.plan_id, number))
        return listed is not None and listed.has_result


class PlanFolder:
    """The compaction plans of a table or branch whose metadata folder is `path`.

    The folder has files of three kinds: plans, leases (a compactor works on an item of a plan) and releases (a
    compactor has given an item back). None of these files ever changes, so each of them is read only once.
    """

    def __init__(self, io: FileIO, path: str) -> None:
        self._io = io
        self.directory = f"{path}/{COMPACTION_DIR}"
        self._plans: dict[int, Plan] = {}
        self._leases: dict[str, Lease] = {}
        self._releases: dict[str, Release] = {}
        self._unreadable: set[int] = set()

    def list(self) -> Listing:
        """Lists the plan folder once. Returns the numbers of the plans, and which files the items (planned compactions
        of one bucket each) have. Raises StorageError.
        """
        numbers: list[int] = []
        items: dict[tuple[str, int], _Listed] = {}
        item_names: list[str] = []
        names = self._io.list_names(self.directory)
        for name in names:
            plan, item = _PLAN.fullmatch(name), _ITEM.fullmatch(name)
            if plan is not None:
                numbers.append(int(plan[1]))
            elif item is not None:
                item_names.append(name)
                listed = items.setdefault((item[1], int(item[2])), _Listed())
                if item[3] == "result":
                    listed.has_result = True
                elif item[4] is not None:
                    listed.epochs[item[3]].add(int(item[4]))
        self._forget_others(set(numbers), {f"{self.directory}/{name}" for name in names})
        return Listing(tuple(sorted(numbers)), items, tuple(item_names))

    def _forget_others(self, numbers: set[int], paths: set[str]) -> None:
        """Drops the plans, leases and releases from memory whose files are no longer in the folder. `numbers` are the
        numbers of the plans in the folder, and `paths` are the paths of all files in the folder.
        """
        self._plans = {n: plan for n, plan in self._plans.items() if n in numbers}
        self._leases = {path: lease for path, lease in self._leases.items() if path in paths}
        self._releases = {path: release for path, release in self._releases.items() if path in paths}

    def plan(self, number: int, listing: Listing | None = None) -> Plan | None:
        """Returns the plan with this number; None if there is no such plan. Raises CorruptFileError, StorageError.

        The plan is read again unless the listing shows that it is closed, because the table may have been dropped and
        created again.
        """
        known = self._plans.get(number)
        if known is None or (listing is not None and not listing.is_closed(known)):
            self._plans.pop(number, None)
            path = self.plan_path(number)
            data = self._io.read_optional(path)
            if data is None:
                return None
            self._plans[number] = decode_plan(data, path)
        return self._plans[number]

    def plans(self, listing: Listing) -> dict[int, Plan]:
        """Returns the plans whose files are in the listing, by number. A plan whose file was removed after the
        listing is left out. Raises the errors of `plan`.
        """
        numbered = ((number, self.plan(number, listing)) for number in listing.plan_numbers)
        return {number: plan for number, plan in numbered if plan is not None}

    def readable(self, listing: Listing) -> dict[int, Plan]:
        """Returns the plans in a listing whose files can be read, by number. For each plan whose file cannot be read,
        a warning is logged once. Raises StorageError.
        """
        plans = {}
        for number in listing.plan_numbers:
            try:
                plan = self.plan(number, listing)
            except CorruptFileError as e:
                if number not in self._unreadable:
                    _LOG.warning("a compaction plan is skipped, because its file cannot be read: %s", e)
                self._unreadable.add(number)
                continue
            if plan is not None:
                plans[number] = plan
        return plans

    def publish_plan(self, number: int, plan: Plan) -> bool:
        """Publishes a plan under a number; returns False if the number is taken. Raises StorageError."""
        if not self._publish(self.plan_path(number), encode_plan(plan)):
            return False
        self._plans[number] = plan
        return True

    def view(self, listing: Listing, plan: Plan, number: int) -> ItemView:
        """Returns the state of an item of a compaction plan: for example who has its lease, and its result. The state
        follows from the item's files, as far as the listing shows them. Raises CorruptFileError, StorageError.
        """
        listed = listing.items.get((plan.plan_id, number), _Listed())
        if listed.has_result:
            return ItemView(result=self.result(plan, number))
        epoch = max(listed.epochs["lease"], default=0)
        if not epoch:
            return ItemView()
        releases = {e: self._release(plan, number, e) for e in sorted(listed.epochs["release"])}
        beat = None
        if releases.get(epoch) is None:
            data = self._io.read_optional(self._path(plan.plan_id, number, "beat", epoch))
            beat = None if data is None else data.decode("ascii", "replace")
        return ItemView(
            epoch=epoch,
            lease=self._lease(plan, number, epoch),
            beat=beat,
            release=releases.get(epoch),
            failures=sum(r is not None and r.failure is not None for r in releases.values()),
            failure=next((r.failure for _, r in sorted(releases.items(), reverse=True) if r and r.failure), None),
        )

    def claim(self, plan: Plan, number: int, epoch: int, lease: Lease) -> Claim | None:
        """Takes the lease of an item of a compaction plan for this process: the right to work on the item. `epoch` is
        the number of the lease among all leases of the item. Returns None if another process has taken this lease.
        Raises StorageError.
        """
        path = self._path(plan.plan_id, number, "lease", epoch)
        return Claim(plan.plan_id, number, epoch, lease) if self._publish(path, encode_lease(lease)) else None

    def renew(self, claim: Claim, beat: int) -> None:
        """Renews the heartbeat of a lease, to show that its owner is alive. `beat` must differ from call to call.
        Raises StorageError.
        """
        self._io.overwrite(self._path(claim.plan_id, claim.number, "beat", claim.epoch), str(beat).encode())

    def is_superseded(self, claim: Claim) -> bool:
        """Returns True if another process has taken over the item (a planned compaction) after this claim was made.
        Raises StorageError.
        """
        return self._io.exists(self._path(claim.plan_id, claim.number, "lease", claim.epoch + 1))

    def release(self, claim: Claim, failure: str | None = None) -> None:
        """Releases an item, so that another compactor can take it; `failure` is the error for which the item is
        released (None: no error). Raises StorageError.
        """
        self._publish(self.release_path(claim), encode_release(Release(failure)))

    def release_path(self, claim: Claim) -> str:
        """Returns the path of the file that says that the item was released."""
        return self._path(claim.plan_id, claim.number, "release", claim.epoch)

    def record(self, plan: Plan, number: int, result: ItemResult) -> ItemResult:
        """Stores the result of an item (a planned compaction of one bucket), which closes the item. Returns the stored
        result: the given result, or the result of another process that was faster. Raises CorruptFileError,
        StorageError.
        """
        if self._publish(self._path(plan.plan_id, number, "result"), encode_result(result)):
            return result
        return self.result(plan, number) or result

    def result(self, plan: Plan, number: int) -> ItemResult | None:
        """Returns the result of an item; None while the item is open. Raises CorruptFileError, StorageError."""
        path = self._path(plan.plan_id, number, "result")
        data = self._io.read_optional(path)
        return None if data is None else decode_result(data, path)

    def remove(self, number: int, plan: Plan, listing: Listing) -> None:
        """Removes a plan, and the files of its items (the compactions of single buckets). The plan's own file is
        removed first: otherwise another process could take an item whose result file is gone already.
        """
        self._io.delete(self.plan_path(number))
        self._plans.pop(number, None)
        for (plan_id, item), listed in listing.items.items():
            if plan_id != plan.plan_id:
                continue
            for kind, epochs in listed.epochs.items():
                for epoch in sorted(epochs):
                    path = self._path(plan_id, item, kind, epoch)
                    self._io.delete(path)
                    self._leases.pop(path, None)
                    self._releases.pop(path, None)
            if listed.has_result:
                self._io.delete(self._path(plan_id, item, "result"))

    def plan_path(self, number: int) -> str:
        return f"{self.directory}/plan-{number}"

    def _lease(self, plan: Plan, number: int, epoch: int) -> Lease | None:
        path = self._path(plan.plan_id, number, "lease", epoch)
        if path not in self._leases:
            data = self._io.read_optional(path)
            if data is None:
                return None
            self._leases[path] = decode_lease(data, path)
        return self._leases[path]

    def _release(self, plan: Plan, number: int, epoch: int) -> Release | None:
        path = self._path(plan.plan_id, number, "release", epoch)
        if path not in self._releases:
            data = self._io.read_optional(path)
            if data is None:
                return None
            self._releases[path] = decode_release(data, path)
        return self._releases[path]

    def _path(self, plan_id: str, number: int, kind: str, epoch: int | None = None) -> str:
        end = "" if epoch is None else f"-{epoch}"
        return f"{self.directory}/item-{plan_id}-{number}-{kind}{end}"

    def _publish(self, path: str, data: bytes) -> bool:
        """Creates a file if it does not exist, and returns True. Also returns True if the file exists with these bytes,
        because then only the answer of the storage was lost.
        """
        try:
            if self._io.publish(path, data):
                return True
        except StorageError as e:
            stored = None if e.published is False else self._io.read_optional(path)
            if stored is None:
                raise
            return stored == data
        return self._io.read_optional(path) == data


def plan_id_in(name: str) -> str | None:
    """Returns the id of the plan to which the file of an item belongs, from the file's name; None for any
    other file.
    """
    match = _ITEM.fullmatch(name)
    return None if match is None else match[1]


def named_by_plans(io: FileIO, path: str) -> set[str]:
    """Returns the names of files in the plan folder of the table at `path`: the files of items that belong to a plan
    which still exists. If a plan cannot be read, it is not known which items belong to it, so the files of all items
    are returned. Raises StorageError.
    """
    folder = PlanFolder(io, path)
    listing = folder.list()
    try:
        known = {plan.plan_id for plan in folder.plans(listing).values()}
    except CorruptFileError:
        return set(listing.item_names)
    return {name for name in listing.item_names if plan_id_in(name) in known}


def broken_plans(io: FileIO, path: str) -> Iterator[tuple[str, str]]:
    """Yields the path of each plan and result of the table at `path` that cannot be read, with a message. Raises
    StorageError.
    """
    folder = PlanFolder(io, path)
    listing = folder.list()
    for number in listing.plan_numbers:
        try:
            plan = folder.plan(number)
        except CorruptFileError as e:
            yield folder.plan_path(number), e.message
            continue
        if plan is None:
            continue
        for item in plan.items:
            try:
                folder.view(listing, plan, item.number)
            except CorruptFileError as e:
                yield str(e.path), e.message
