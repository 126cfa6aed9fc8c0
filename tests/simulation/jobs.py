"""A job of several tables, as Spark's foreachBatch calls it: one topic, one ledger in a checkpoint, each batch written
again until the job says that it is done. The job is the product's; its tasks run in this process."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from bucketline.streaming.many import side_by_side
from bucketline.streaming.tasks.many import write_tables
from tests.simulation.judge import Doing
from tests.simulation.rows import DELETE, Effect
from tests.simulation.scheduler import Process
from tests.simulation.sources import SerialPool
from tests.support.spark.many_shop import Shop

JOB = "job"
"""The operation: a batch of a job of all tables."""


@dataclass(eq=False)
class Doings:
    """What one operation does to several tables."""

    of_table: Mapping[str, Doing]

    def at(self, path: str) -> Doing | None:
        """What is done to the table at a path."""
        return self.of_table.get(path.rpartition("/")[2])

    def __str__(self) -> str:
        return " and ".join(map(str, self.of_table.values()))


@dataclass
class JobRun:
    """A job, its topic and its checkpoint, which outlive the processes that run it."""

    shop: Shop
    process: Process | None = None
    effects: dict[int, Mapping[str, Effect]] = field(default_factory=dict)

    @classmethod
    def of(cls, root: str, name: str, tables: list[str]) -> "JobRun":
        routes = "".join(f"  - {{source-table: shop.{t}, table: {root}/{t}}}\n" for t in tables)
        return cls(Shop(Path(f"{root}/{name}"), f"tables:\n{routes}"))

    def plan(self, number: int, effects: Mapping[str, Effect]) -> Mapping[str, Effect]:
        """Puts the rows of a batch into the topic, once. Returns the effect of the batch on each table."""
        known = self.effects.setdefault(number, effects)
        if number == len(self.shop.plans):
            for table, effect in known.items():
                for (id, day, v, _), kind in effect.rows:
                    self.shop.topic.change(table, {"id": id, "day": day, "v": v}, "d" if kind == DELETE else "c")
            self.shop.plans.append(self.shop.topic.ends)
        return known

    def write(self, process: Process, number: int) -> None:
        """Writes a batch. Another process than the last one starts without the state of that one."""
        if self.process is not process:
            self.shop.crash()
            self.process = process
        self.shop.write(number)


def some_tables(draw: random.Random, tables: list[str]) -> list[str]:
    """The tables that a batch has rows of, at least one."""
    return sorted(draw.sample(tables, draw.randrange(1, len(tables) + 1)))


@contextmanager
def jobs_of_processes() -> Iterator[None]:
    """While the block runs, a job commits its tables one after the other."""
    with (
        patch.object(side_by_side, "ThreadPoolExecutor", SerialPool),
        patch.object(write_tables, "ThreadPoolExecutor", SerialPool),
    ):
        yield
