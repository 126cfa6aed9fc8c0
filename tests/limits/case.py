"""What a limit is: a shape of a table that is far from the usual, steps on it, and a bound for each step.

A bound is compared with a process of its own for each step. Memory is what this process grows by at its peak, so that
an idle process counts nothing. Time is CPU seconds for each unit of the shape (a row, a file, ...), as a multiple of
what the same step takes for each unit of a plain shape on the same machine, in the same run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


class Shape(Protocol):
    """A table of one shape in a folder; `units` is what the cost of a step is divided by."""

    @property
    def units(self) -> float: ...

    def prepare(self, folder: Path) -> None:
        """Makes what the steps start from. This is not measured."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done with a table, and its bound.

    `work` does the step, and raises AssertionError if its outcome is wrong. `is_whole` means that the step is not to
    cost more for a shape with more units: its CPU seconds are compared as they are.
    """

    name: str
    work: Callable[[Any, Path], None]
    most_mib: int
    most_times: float
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """A limit: `far` and `plain` make its two shapes for a scale, which is a part of the full size."""

    name: str
    what: str
    plain_what: str
    far: Callable[[float], Shape]
    plain: Callable[[float], Shape]
    steps: tuple[Step, ...]


def scaled(full: int, scale: float, least: int = 1) -> int:
    """Returns the scaled number, never below `least`."""
    return max(least, round(full * scale))
