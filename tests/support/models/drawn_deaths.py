"""Deaths of the processes of a stream, drawn from a seed: in which batch, of whom, and when in the batch."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

FIRST_BATCH, LAST_BATCH = 20, 60


class Victim(Enum):
    """The processes that a death takes with it."""

    WORKER = "one Python worker of an executor"
    EXECUTOR = "an executor and its Python workers"
    DRIVER = "the driver's Python and its JVM"
    DRIVER_PYTHON = "the driver's Python alone"
    DRIVER_JVM = "the driver's JVM alone"
    MACHINE = "a worker of the cluster with all that runs on it"


DRIVERS = frozenset({Victim.DRIVER, Victim.DRIVER_PYTHON, Victim.DRIVER_JVM})


@dataclass(frozen=True, slots=True)
class Death:
    """A death: it comes in a batch, once that share of the time has passed that a batch takes."""

    batch_id: int
    victim: Victim
    share: float


def drawn_deaths(draw: random.Random, count: int, victims: Sequence[Victim] = tuple(Victim)) -> list[Death]:
    """Returns `count` deaths in the order of their batches, at most one in a batch. Each victim comes as often as the
    others, up to one time."""
    batches = sorted(draw.sample(range(FIRST_BATCH, LAST_BATCH + 1), count))
    taken = [victims[number % len(victims)] for number in range(count)]
    draw.shuffle(taken)
    return [Death(batch, victim, draw.random()) for batch, victim in zip(batches, taken, strict=True)]
