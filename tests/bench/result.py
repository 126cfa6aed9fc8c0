"""What a measurement found, and the target it is compared with."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

SCALE_VARIABLE = "BUCKETLINE_BENCH_SCALE"
REPEATS_VARIABLE = "BUCKETLINE_BENCH_REPEATS"


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: `scale` is a part of the sizes that the targets are stated for, at most 1."""

    scale: float
    repeats: int

    @classmethod
    def from_environment(cls) -> "Size":
        """`$BUCKETLINE_BENCH_SCALE` (default 1) and `$BUCKETLINE_BENCH_REPEATS` (default 3)."""
        return cls(float(os.environ.get(SCALE_VARIABLE, "1")), int(os.environ.get(REPEATS_VARIABLE, "3")))

    def rows(self, full: int) -> int:
        """The scaled number of rows, never below 1000."""
        return max(1000, int(full * self.scale))


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the report. `ratio` is to be at most `at_most`, or at least `at_least`; bytes are bytes.

    `rows` and `seconds` are of one repetition of ours, the median; `other_seconds` is that of what it is compared with.
    """

    name: str
    what: str
    rows: int
    seconds: float
    other_seconds: float
    written_bytes: int
    worker_peak_bytes: int
    ratio: float
    at_most: float | None = None
    at_least: float | None = None
    memory_limit_bytes: int | None = None
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def target(self) -> str:
        ratio = f"<= {self.at_most:g}" if self.at_most is not None else f">= {self.at_least:g}"
        return ratio if self.memory_limit_bytes is None else f"{ratio}, < {self.memory_limit_bytes >> 20} MiB"

    @property
    def met(self) -> bool:
        if self.memory_limit_bytes is not None and self.worker_peak_bytes >= self.memory_limit_bytes:
            return False
        if self.at_most is not None:
            return self.ratio <= self.at_most
        assert self.at_least is not None, "a result has a target"
        return self.ratio >= self.at_least

    def as_json(self) -> dict[str, Any]:
        rate = self.rows / self.seconds if self.seconds else 0.0
        return asdict(self) | {"rows_per_second": rate, "target": self.target, "met": self.met}


Bench = Callable[[Size, Path], Sequence[Result]]
"""Measures in a folder that is removed afterwards."""


def asked(variable: str, known: Iterable[str]) -> list[str]:
    """Those of the known names that a variable has, with commas; without the variable all. Raises SystemExit for a name
    that is not known."""
    names = list(known)
    given = os.environ.get(variable)
    wanted = names if given is None else given.split(",")
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise SystemExit(f"${variable}: there is no {', '.join(unknown)}; there are {', '.join(names)}")
    return [name for name in names if name in wanted]


def paired_ratio(ours: Sequence[float], others: Sequence[float]) -> float:
    """The median of the ratios of runs that followed each other, so that a slow spell of the machine hits both."""
    return median(a / b for a, b in zip(ours, others, strict=True))


def folder_bytes(folder: Path | str) -> int:
    """Bytes of all files below a folder."""
    return sum(p.stat().st_size for p in Path(folder).rglob("*") if p.is_file())
