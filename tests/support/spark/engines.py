"""Engines that do what a test says."""

from collections.abc import Callable
from dataclasses import dataclass

from bucketline.state.store.engine.engine import Jobs, Outcome, Parts
from bucketline.state.store.write.stages import Stages
from bucketline.state.store.write.write_plan import ONE_WORKER, Workers


@dataclass(frozen=True)
class JobEngine:
    """Does jobs as that function does them; it has nothing for rows."""

    act: Callable[[Jobs], Outcome]
    workers: Workers = ONE_WORKER

    def run(self, work: Stages[Parts] | Jobs) -> Outcome:
        assert isinstance(work, Jobs), work
        return self.act(work)
