"""Commits of few files into a `CommitTable`, and others that act in between."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bucketline.state.commit.message import CommitMessage
from bucketline.state.commit.outcome import Committed
from tests.support.storage.faulty_io import FaultyIO
from tests.support.tables.commit_table import CommitTable, message
from tests.support.tables.commits import data_file

ME = "me"


def append(table: CommitTable, *names: str, identifier: int = 1, user: str = ME) -> Committed:
    messages = table.put_files([message(data_file(n)) for n in names])
    outcome = table.committer().commit(messages, user=user, identifier=identifier)
    assert isinstance(outcome, Committed)
    return outcome


def compacted(name: str, *names: str) -> CommitMessage:
    """A message that merges files of level 0 into one of level 5."""
    before = [data_file(n) for n in names]
    return message(before=before, after=[data_file(name, level=5, rows=10 * len(before))])


@dataclass
class Interference:
    """Lets others act just before one of our publications."""

    acts: list[Callable[[], object]] = field(default_factory=list)

    def __call__(self, name: str, path: str) -> None:
        if name == "publish" and self.acts:
            self.acts.pop(0)()


def interrupted(table: CommitTable, *acts: Callable[[], object]) -> CommitTable:
    return replace(table, io=FaultyIO(table.storage, before_call=Interference(list(acts))))
