"""The engine of this process: stages run one after the other, here."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from bucketline.state.store.commit.discard import discarded_on_error
from bucketline.state.store.engine.engine import Outcome, Parts
from bucketline.state.store.write.placing import SnapshotNote
from bucketline.state.store.write.run_buffer import RunBuffer
from bucketline.state.store.write.stages import Stages
from bucketline.state.store.write.write_buckets import compact_idle, write_buckets
from bucketline.state.store.write.write_plan import ONE_WORKER, Workers


def _nobody(done: int, total: int) -> None:
    del done, total


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """`watch` hears how many idle buckets are compacted, and of how many, before the first and after each."""

    watch: Callable[[int, int], None] = _nobody

    @property
    def workers(self) -> Workers:
        return ONE_WORKER

    def run(self, stages: Stages[Parts]) -> Outcome:
        """As `Engine.run`; an error leaves no new file behind."""
        write, notes = stages.write, list[str]()
        if stages.place is not None:
            write = replace(write, groups=stages.place)
        bucket_write = write.write
        with discarded_on_error(bucket_write.access) as messages:
            with RunBuffer(
                budget_bytes=bucket_write.merge_memory_bytes, directory=bucket_write.local_directory
            ) as buffer:
                for part in stages.source.parts:
                    for run in part.runs(stages.seal):
                        buffer.add(run)
                for made in write_buckets(write, buffer):
                    if isinstance(made, SnapshotNote):
                        notes.append(made.token)
                    else:
                        messages.append(made)
            busy = {(m.partition, m.bucket) for m in messages}
            idle = [b for b in stages.idle if b not in busy]
            for done, bucket_id in enumerate(idle):
                self.watch(done, len(idle))
                messages.append(compact_idle(write, bucket_id))
            self.watch(len(idle), len(idle))
        return Outcome((*messages, *stages.retired), notes=tuple(notes))


LOCAL_ENGINE = LocalEngine()
