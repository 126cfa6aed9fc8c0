"""Whether what was measured again and again has grown: the last third of a run beside the first third after warm-up."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

WARM_UP = 0.25
"""The share of the run that is not looked at, as caches fill and code is compiled in it."""
LEAST_VALUES = 3
"""The number of values that a third has to have, so that its median says something."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How much a value may grow: by this share, or by as many units as are noise, whichever is more."""

    share: float
    noise: float = 0.0


@dataclass(frozen=True, slots=True)
class Drift:
    """The medians of a value in the first third after warm-up and in the last one, and how far it may grow."""

    name: str
    first: float
    last: float
    bound: Bound

    @property
    def share(self) -> float:
        """The growth as a share of the first median; 0 where both are 0."""
        return (self.last - self.first) / self.first if self.first else float(self.last > 0)

    @property
    def is_broken(self) -> bool:
        """Whether the value has grown by more than it may."""
        return self.last - self.first > max(self.bound.share * self.first, self.bound.noise)


class TooFewValuesError(Exception):
    """A value was measured too rarely to say whether it grows."""


def drift_of(name: str, values: Sequence[tuple[float, float]], bound: Bound, *, begun: float, ended: float) -> Drift:
    """Takes values with their times, and the times at which the run began and ended; returns how the value has grown.

    Raises TooFewValuesError where one of the two thirds has fewer than `LEAST_VALUES`.
    """
    warm = begun + WARM_UP * (ended - begun)
    third = (ended - warm) / 3
    first = [value for time, value in values if warm <= time < warm + third]
    last = [value for time, value in values if ended - third <= time <= ended]
    if min(len(first), len(last)) < LEAST_VALUES:
        raise TooFewValuesError(f"{name}: {len(first)} values in the first third, {len(last)} in the last one")
    return Drift(name, statistics.median(first), statistics.median(last), bound)


def table_of(found: Sequence[Drift]) -> str:
    """The drifts as lines of a text, those beyond their bounds marked."""
    width = max((len(d.name) for d in found), default=0)
    lines = [f"{'':{width}}  {'first third':>14}  {'last third':>14}  {'growth':>8}  bound"]
    for d in found:
        bound = f"{d.bound.share:.0%}" + (f" or {d.bound.noise:,.1f}" if d.bound.noise else "")
        line = f"{d.name:{width}}  {d.first:>14,.2f}  {d.last:>14,.2f}  {d.share:>8.1%}  {bound}"
        lines.append(line + ("  BROKEN" if d.is_broken else ""))
    return "\n".join(lines)
