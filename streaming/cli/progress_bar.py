"""Progress on a terminal: a bar if the total is known, otherwise a count. Nothing is shown without a terminal."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from bucketline.streaming.cli.rows import console


class Bar(Protocol):
    def advance(self, count: int) -> None:
        """Adds `count` to the amount that is done."""
        ...

    def show(self, done: int, total: int) -> None:
        """Sets the amount that is done, and the total."""
        ...


@dataclass(frozen=True, slots=True)
class _Shown:
    progress: Progress
    task: TaskID

    def advance(self, count: int) -> None:
        self.progress.advance(self.task, count)

    def show(self, done: int, total: int) -> None:
        self.progress.update(self.task, completed=done, total=total)


@dataclass(frozen=True, slots=True)
class _Unseen:
    def advance(self, count: int) -> None:
        pass

    def show(self, done: int, total: int) -> None:
        pass


@contextmanager
def progress_bar(unit: str) -> Iterator[Bar]:
    """Yields a progress bar on the standard error, and removes it when the block ends. Without a terminal nothing is
    shown.
    """
    out = console(stderr=True)
    if not out.is_terminal:
        yield _Unseen()
        return
    text = TextColumn("{task.description}")
    columns = (SpinnerColumn(), BarColumn(), MofNCompleteColumn(), text, TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as progress:
        yield _Shown(progress, progress.add_task(unit, total=None))
