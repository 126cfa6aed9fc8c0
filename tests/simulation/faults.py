"""The faults at a call to storage, and which of them each storage's contract allows."""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class FaultKind(Enum):
    """What happens to the call that the fault hits."""

    BEFORE = "nothing happens, and the answer is an error"
    AFTER = "it happens, and the answer is an error"
    LATE = "the answer is an error, and it happens a little later"
    TWICE = "it happens, and once more a little later, as a request that the network repeats"
    TORN = "a write fails half way"
    CUT = "this and all calls of the process fail for a while"
    FULL = "the storage has no room for a while, for anybody"
    KILL = "the process dies before the call"
    KILL_AFTER = "the process dies after the call"
    KILL_TORN = "the process dies half way through a write"
    STOP = "the process stops before the call, and goes on"
    STOP_AFTER = "the process stops after the call, before it has the answer"
    JUMP = "the machine's clock jumps"
    SPECULATE = "each task of the operation runs twice"


KILLS = frozenset({FaultKind.KILL, FaultKind.KILL_AFTER, FaultKind.KILL_TORN})
_ANY = frozenset(FaultKind) - {FaultKind.LATE, FaultKind.TWICE, FaultKind.TORN, FaultKind.KILL_TORN}


class Store(Enum):
    """The storages that a world may have."""

    POSIX = "posix"
    OBJECTS = "objects"
    HDFS = "hdfs"
    REST = "a REST catalog on objects"


ALLOWED = {
    Store.POSIX: _ANY | {FaultKind.TORN, FaultKind.KILL_TORN},
    Store.OBJECTS: _ANY | {FaultKind.LATE, FaultKind.TWICE},
    Store.HDFS: _ANY | {FaultKind.KILL_TORN},
    Store.REST: _ANY | {FaultKind.LATE, FaultKind.TWICE},
}


@dataclass(frozen=True)
class Fault:
    """A fault at call number `at` of an operation, counted from 1; `ms` is how long it lasts, or how far a clock
    jumps. If `mark` is not 0, calls are counted from the operation's mark of that number, which itself is call 0."""

    kind: FaultKind
    at: int
    ms: int = 0
    mark: int = 0


@dataclass
class Trouble:
    """The faults of the operation that a process is doing, and which of them have struck."""

    owner: Any = None
    """The operation, as the judge knows it."""
    faults: tuple[Fault, ...] = ()
    calls: int = 0
    marks: list[int] = field(default_factory=list)
    """The numbers of the calls by which others see that the operation has done a part of its work."""
    cut_until_ms: int = -1
    struck: Counter[FaultKind] = field(default_factory=Counter)

    def begin(self, owner: Any, faults: tuple[Fault, ...]) -> None:
        """Another operation begins."""
        self.owner, self.faults, self.calls, self.cut_until_ms = owner, faults, 0, -1
        self.marks = []

    def call(self, name: str, path: str) -> tuple[Fault, ...]:
        """The faults of the call that is about to be made."""
        self.calls += 1
        if is_mark(name, path):
            self.marks.append(self.calls)
        return tuple(f for f in self.faults if self._number_of(f) == self.calls)

    def _number_of(self, fault: Fault) -> int | None:
        """The number of the call that a fault hits; None as long as its mark has not been reached."""
        if not fault.mark:
            return fault.at
        return self.marks[fault.mark - 1] + fault.at if fault.mark <= len(self.marks) else None


def is_mark(name: str, path: str) -> bool:
    """Whether others see by a call that an operation goes on: it makes or removes a snapshot or a schema, removes a
    folder, or asks a catalog."""
    if name in ("request", "delete_folder"):
        return True
    changes = name in ("publish", "write_new", "move", "delete")
    return changes and ("/snapshot/snapshot-" in path or "/schema/schema-" in path)
