"""Makes a script that shows a mistake shorter: steps and faults are left out while it still shows one of its kind."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.simulation.life import Life
from tests.simulation.script import Script, Track

T = TypeVar("T")


def failure_of(script: Script) -> str | None:
    """What goes wrong in a world; None where nothing does."""
    return Life(script).live().failure


def shortened(script: Script, *, most_runs: int = 150, failing: Callable[[Script], bool] | None = None) -> Script:
    """A script with fewer steps and faults that fails too, found in at most `most_runs` runs."""
    is_failing = failing if failing is not None else lambda s: failure_of(s) is not None
    left = most_runs

    def fails(candidate: Script) -> bool:
        nonlocal left
        left -= 1
        return left >= 0 and is_failing(candidate)

    found = script
    while left > 0:
        numbers = [s.number for s in found.steps]
        kept = _minimal(numbers, lambda some: fails(_with_steps(found, set(some))))  # noqa: B023 (called at once)
        found = _with_steps(found, set(kept))
        calmer = _without_faults(found, fails)
        if calmer == found:
            return found
        found = calmer
    return found


def _minimal(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Delta debugging: parts are left out, large ones first, while it fails without them."""
    size = max(1, len(items) // 2)
    while True:
        start = 0
        while start < len(items):
            rest = [*items[:start], *items[start + size :]]
            if fails(rest):
                items = rest
            else:
                start += size
        if size == 1:
            return items
        size = max(1, size // 2)


def _with_steps(script: Script, numbers: set[int]) -> Script:
    """All tracks stay, also those without a step: what an actor draws depends on its place among them."""
    tracks = [replace(t, steps=tuple(s for s in t.steps if s.number in numbers)) for t in script.tracks]
    return replace(script, tracks=tuple(tracks))


def _without_faults(script: Script, fails: Callable[[Script], bool]) -> Script:
    for step in script.steps:
        for fault in step.faults:
            calmer = replace(step, faults=tuple(f for f in step.faults if f is not fault))
            candidate = replace(script, tracks=tuple(_exchanged(t, step.number, calmer) for t in script.tracks))
            if fails(candidate):
                return _without_faults(candidate, fails)
    return script


def _exchanged(track: Track, number: int, step: object) -> Track:
    steps = tuple(step if s.number == number else s for s in track.steps)
    return replace(track, steps=steps)  # type: ignore[arg-type]
