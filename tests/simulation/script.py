"""A script is the value that decides a world. It is drawn from a seed, and shortened if it shows a mistake."""

from dataclasses import dataclass, field

from tests.simulation.faults import Fault, Store


@dataclass(frozen=True)
class Step:
    """One operation of an actor: its name, the seed of its details, and its faults."""

    number: int
    table: str
    operation: str
    details: int
    gap_ms: int = 0
    """How long after the step before it, or after the actors' beginning."""
    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True)
class Track:
    """What one actor does, one step after the other. A stream's steps are its batches, written until they are there."""

    name: str
    steps: tuple[Step, ...]
    slowness: float = 1.0
    drift: float = 0.0
    offset_ms: int = 0


@dataclass(frozen=True)
class TablePlan:
    """A table of a world: the name of its kind, and options in addition to those of the kind."""

    name: str
    kind: str
    options: tuple[tuple[str, str], ...] = ()
    history: int = 3
    """How many commits it has when the world begins."""


@dataclass(frozen=True)
class Script:
    """All of a world."""

    seed: str
    store: Store
    tables: tuple[TablePlan, ...]
    tracks: tuple[Track, ...]
    judged_by_doctor: bool = field(default=False)
    shares_keys: bool = True
    """Whether actors write the same keys. If not, every row that an actor writes must be in the table."""

    def first_id(self, actor: str) -> int:
        """Where the keys of an actor begin."""
        names = [t.name for t in self.tracks]
        return 0 if self.shares_keys or actor not in names else 100 * (1 + names.index(actor))

    @property
    def steps(self) -> list[Step]:
        return [s for t in self.tracks for s in t.steps]

    def lines(self) -> list[str]:
        """The script as people read it."""
        told = [f"seed {self.seed}, {self.store.value}"]
        told += [f"table {t.name}: {t.kind} {dict(t.options)}, {t.history} commits" for t in self.tables]
        for track in self.tracks:
            told.append(f"{track.name}: slowness {track.slowness}, clock {track.offset_ms} ms, drift {track.drift}")
            for s in track.steps:
                faults = ", ".join(f"{f.kind.name} at {_place(f)} ({f.ms} ms)" for f in s.faults)
                told.append(f"  {s.number}: {s.operation} {s.table} {s.details} after {s.gap_ms} ms {faults}")
        return told


def _place(fault: Fault) -> str:
    return f"{fault.at} after mark {fault.mark}" if fault.mark else str(fault.at)
