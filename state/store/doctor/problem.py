"""The problems (broken rules) that an examination of a table finds. A problem records the snapshots, tags and branches
in which it was found: once all of them are removed, the problem does not exist any more.
"""

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from bucketline.conf.errors import BucketlineError
from bucketline.state.errors import StorageError
from bucketline.state.store.catalog.kept_files import reraise_unless_missing


@dataclass(frozen=True, slots=True)
class Needed:
    """What needs a file: the table's snapshots from `first` to `last`, both included, and the tags and branches
    `named`.
    """

    first: int = 1
    last: int = 0
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """A broken rule: its name, the file or folder that it is about, and a message that says what is wrong.

    `needed` are the snapshots, tags and branches that must still exist for the problem to be real. If `needed` is None,
    the problem does not depend on any snapshot, tag or branch.
    """

    rule: str
    subject: str
    message: str
    needed: Needed | None = None


@dataclass(frozen=True, slots=True)
class State:
    """A snapshot of the table, by its id; or the snapshot of a tag or branch, by its name.

    `has_tags` is True if tags of the snapshot also need its files. It is False for the changelog of a snapshot, because
    a tag does not keep a changelog.
    """

    name: str
    id: int | None = None
    has_tags: bool = True

    @property
    def needed(self) -> Needed:
        return Needed(named=(self.name,)) if self.id is None else Needed(self.id, self.id)


@dataclass(slots=True)
class _Record:
    text: str
    has_tags: bool
    first: int | None = None
    last: int | None = None
    named: list[str] = field(default_factory=list)


class Broken:
    """The files that differ from what a snapshot records. Each file is recorded once, with all snapshots, tags and
    branches that need it.
    """

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], _Record] = {}
        self._open: dict[object, list[_Record]] = {}

    def note(self, state: State, rule: str, subject: str, text: str, *, owner: object = None) -> None:
        """Records that a file is broken, and that `state` (a snapshot, a tag or a branch) needs the file. In `text`,
        `{state}` stands for all snapshots, tags and branches that need the file.

        `owner` is a data file, an index file or a manifest that is broken or names the broken file. Every later
        snapshot that names the owner needs the broken file too; `extend` adds these snapshots.
        """
        record = self._records.setdefault((rule, subject), _Record(text, state.has_tags))
        if state.id is None:
            if state.name not in record.named:
                record.named.append(state.name)
            return
        record.first = state.id if record.first is None else min(record.first, state.id)
        record.last = state.id if record.last is None else max(record.last, state.id)
        if owner is not None and all(r is not record for r in self._open.get(owner, ())):
            self._open.setdefault(owner, []).append(record)

    def extend(self, snapshot_id: int, owners: Container[object]) -> None:
        """Records that the snapshot also needs the broken files of `owners`, which are the data files, index files and
        manifests that the snapshot names. All other owners are forgotten, because no later snapshot names them.
        """
        for owner in list(self._open):
            if owner not in owners:
                del self._open[owner]
        for records in self._open.values():
            for record in records:
                record.last = snapshot_id

    def also(self, snapshot_id: int, name: str) -> None:
        """Notes that a tag or branch has the same state as the snapshot with this id. So what is known about the files
        of the snapshot also holds for the tag or branch.
        """
        for r in self._records.values():
            if r.has_tags and r.first is not None and r.last is not None and r.first <= snapshot_id <= r.last:
                r.named.append(name)

    def problems(self) -> Iterator[Problem]:
        """Yields all problems that were recorded."""
        for (rule, subject), r in self._records.items():
            states = list(r.named)
            if r.first is not None:
                is_single = r.first == r.last
                states.insert(0, f"snapshot {r.first}" if is_single else f"snapshots {r.first} to {r.last}")
            text = r.text.replace("{state}", ", ".join(states))
            first, last = (1, 0) if r.first is None or r.last is None else (r.first, r.last)
            yield Problem(rule, subject, text, Needed(first, last, tuple(r.named)))


def passable(error: BucketlineError) -> str:
    """Returns the message of an error that ends one check. If the storage fails for another reason than a missing file,
    raises the error again.
    """
    if isinstance(error, StorageError):
        reraise_unless_missing(error)
    return error.message
