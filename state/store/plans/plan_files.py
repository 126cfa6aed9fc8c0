"""The folder `compaction/` of a table: plans, and for each item its leases, heartbeats and result.

A branch has one of its own, beside its snapshots.

All files lie flat, so that one listing shows what is open. `plan-<n>`, leases, releases and results are made if absent
and never change; a heartbeat is written by the owner of its lease alone. Names hold the plan's UUID, so that a plan
that gets the number of one that was cleaned up has nothing of it. A listing may be old: whatever matters is asked by
name.
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
    """The files of an item in a listing: epochs that have a lease, a heartbeat, a release."""

    epochs: dict[str, set[int]] = field(default_factory=lambda: {"lease": set(), "beat": set(), "release": set()})
    has_result: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """What the folder showed: numbers of plans, ascending, the files of items by plan and number, and their names."""

    plan_numbers: tuple[int, ...] = ()
    items: Mapping[tuple[str, int], _Listed] = field(default_factory=dict)
    item_names: tuple[str, ...] = ()

    def is_closed(self, plan: Plan) -> bool:
        """Whether all items of a plan have results, as far as the listing shows."""
        return all(self.has_result(plan, item.number) for item in plan.items)

    def has_result(self, plan: Plan, number: int) -> bool:
        listed = self.items.get((plan.plan_id, number))
        return listed is not None and listed.has_result


class PlanFolder:
    """The plans of a table, or of a branch, whose metadata is at `path`.

    Plans, leases and releases never change, so each is read once.
    """

    def __init__(self, io: FileIO, path: str) -> None:
        self._io = io
        self.directory = f"{path}/{COMPACTION_DIR}"
        self._plans: dict[int, Plan] = {}
        self._leases: dict[str, Lease] = {}
        self._releases: dict[str, Release] = {}
        self._unreadable: set[int] = set()

    def list(self) -> Listing:
        """One listing. Raises StorageError."""
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
        """Holds no more in memory than what is listed."""
        self._plans = {n: plan for n, plan in self._plans.items() if n in numbers}
        self._leases = {path: lease for path, lease in self._leases.items() if path in paths}
        self._releases = {path: release for path, release in self._releases.items() if path in paths}

    def plan(self, number: int, listing: Listing | None = None) -> Plan | None:
        """The plan of that number; None when there is none. Raises CorruptFileError, StorageError.

        It is read again unless the listing shows that it is closed: the table may have been dropped and made anew.
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
        """The plans of a listing that are there. Raises as `plan`."""
        numbered = ((number, self.plan(number, listing)) for number in listing.plan_numbers)
        return {number: plan for number, plan in numbered if plan is not None}

    def readable(self, listing: Listing) -> dict[int, Plan]:
        """As `plans`, without those that cannot be read: each of these is warned about once. Raises StorageError."""
        plans = {}
        for number in listing.plan_numbers:
            try:
                plan = self.plan(number, listing)
            except CorruptFileError as e:
                if number not in self._unreadable:
                    _LOG.warning("a plan is passed over: %s", e)
                self._unreadable.add(number)
                continue
            if plan is not None:
                plans[number] = plan
        return plans

    def publish_plan(self, number: int, plan: Plan) -> bool:
        """Makes the plan the table's next one; False when its number is taken. Raises StorageError."""
        if not self._publish(self.plan_path(number), encode_plan(plan)):
            return False
        self._plans[number] = plan
        return True

    def view(self, listing: Listing, plan: Plan, number: int) -> ItemView:
        """What the files of an item say, as far as the listing shows them. Raises CorruptFileError, StorageError."""
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
        """The lease of that epoch, which is ours alone; None when somebody else has it. Raises StorageError."""
        path = self._path(plan.plan_id, number, "lease", epoch)
        return Claim(plan.plan_id, number, epoch, lease) if self._publish(path, encode_lease(lease)) else None

    def renew(self, claim: Claim, beat: int) -> None:
        """Shows that the owner is alive: `beat` is another one each time. Raises StorageError."""
        self._io.overwrite(self._path(claim.plan_id, claim.number, "beat", claim.epoch), str(beat).encode())

    def is_superseded(self, claim: Claim) -> bool:
        """Whether somebody else has taken the item since. Raises StorageError."""
        return self._io.exists(self._path(claim.plan_id, claim.number, "lease", claim.epoch + 1))

    def release(self, claim: Claim, failure: str | None = None) -> None:
        """Gives an item back, because of an error or without one. Raises StorageError."""
        self._publish(self.release_path(claim), encode_release(Release(failure)))

    def release_path(self, claim: Claim) -> str:
        """The file that says that the item was given back."""
        return self._path(claim.plan_id, claim.number, "release", claim.epoch)

    def record(self, plan: Plan, number: int, result: ItemResult) -> ItemResult:
        """Closes an item; with what, by us or by who was faster. Raises CorruptFileError, StorageError."""
        if self._publish(self._path(plan.plan_id, number, "result"), encode_result(result)):
            return result
        return self.result(plan, number) or result

    def result(self, plan: Plan, number: int) -> ItemResult | None:
        """What became of an item; None while it is open. Raises CorruptFileError, StorageError."""
        path = self._path(plan.plan_id, number, "result")
        data = self._io.read_optional(path)
        return None if data is None else decode_result(data, path)

    def remove(self, number: int, plan: Plan, listing: Listing) -> None:
        """Removes a plan and what belongs to it. The plan goes first, so that nobody takes up what has no result."""
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
        """Makes a file if there is none; True as well when only the answer was lost: the file is what we wrote."""
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
    """The plan that a file of an item belongs to, from its name; None for other files."""
    match = _ITEM.fullmatch(name)
    return None if match is None else match[1]


def named_by_plans(io: FileIO, path: str) -> set[str]:
    """The names of the files that belong to the plans of the table at `path`; all of them where a plan cannot be read.

    Raises StorageError.
    """
    folder = PlanFolder(io, path)
    listing = folder.list()
    try:
        known = {plan.plan_id for plan in folder.plans(listing).values()}
    except CorruptFileError:
        return set(listing.item_names)
    return {name for name in listing.item_names if plan_id_in(name) in known}


def broken_plans(io: FileIO, path: str) -> Iterator[tuple[str, str]]:
    """(path, message) of each plan and result of the table at `path` that cannot be read. Raises StorageError."""
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
