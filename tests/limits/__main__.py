"""Measures how far bucketline goes, and compares it with the bounds: `python -m tests.limits [NAME...]`.

`$BUCKETLINE_LIMITS_SCALE` is a part of the full sizes, `$BUCKETLINE_LIMITS_JSON` where the results go as JSON. Prints
the rows of the table in docs/how-far.md. The exit code is 1 when a bound is missed at full size.
"""

import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.limits.apart import PREPARE, Taken, apart
from tests.limits.case import Case, Step
from tests.limits.cases import CASES


@dataclass(frozen=True, slots=True)
class Line:
    """A step that was measured, against its bound."""

    case: str
    step: Step
    far: Taken
    plain: Taken
    times: float
    load: float

    @property
    def mib(self) -> int:
        return self.far.grown_bytes >> 20

    @property
    def met(self) -> bool:
        return self.mib <= self.step.most_mib and self.times <= self.step.most_times

    @property
    def markdown(self) -> str:
        bound = f"{self.step.most_mib} MiB, {self.step.most_times} times"
        found = f"{self.mib} MiB, {self.times:.2f} times, {self.far.cpu:.3g} s"
        return f"| {self.case} | {self.step.name} | {bound} | {found}{'' if self.met else ', missed'} |"

    def as_json(self) -> dict[str, object]:
        bounds = {"most_mib": self.step.most_mib, "most_times": self.step.most_times}
        sides = {"far": asdict(self.far), "plain": asdict(self.plain)}
        return {"case": self.case, "step": self.step.name, **bounds, **sides, "times": self.times, "load": self.load}


def main(names: list[str]) -> int:
    scale = float(os.environ.get("BUCKETLINE_LIMITS_SCALE", "1"))
    if unknown := [name for name in names if name not in CASES]:
        print(f"unknown: {', '.join(unknown)}; there are {', '.join(CASES)}", file=sys.stderr)
        return 2
    lines: list[Line] = []
    for name in names or list(CASES):
        with tempfile.TemporaryDirectory(prefix="bucketline-limits-") as folder:
            lines += _measured(CASES[name], scale, Path(folder))
    if (out := os.environ.get("BUCKETLINE_LIMITS_JSON")) is not None:
        Path(out).write_text(json.dumps([line.as_json() for line in lines], indent=2) + "\n")
    return 1 if scale >= 1 and not all(line.met for line in lines) else 0


def _measured(case: Case, scale: float, folder: Path) -> list[Line]:
    """Does each step with the plain shape and then with the far one, and prints what it took."""
    sides = {"plain": case.plain(scale), "far": case.far(scale)}
    for side in sides:
        (folder / side).mkdir()
        apart(case.name, side, PREPARE, scale, folder / side)
    lines = []
    for number, step in enumerate(case.steps):
        taken = {side: apart(case.name, side, number, scale, folder / side) for side in sides}
        units = {side: 1.0 if step.is_whole else shape.units for side, shape in sides.items()}
        costs = {side: taken[side].cpu / units[side] for side in sides}
        times = costs["far"] / costs["plain"] if costs["plain"] else 1.0
        lines.append(Line(case.name, step, taken["far"], taken["plain"], times, os.getloadavg()[0]))
        print(lines[-1].markdown, flush=True)
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
