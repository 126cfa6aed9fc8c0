"""A source of rows that a caller passes in this process."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from bucketline.state.store.write.row_acceptance import RowAcceptance
from bucketline.state.store.write.sealed_runs import RunSealer, SealedRun, SealPlan


@dataclass(frozen=True, slots=True)
class GivenRows:
    """A source of rows that the caller has given: the rows of Arrow tables, in order. `check` is called with the
    partition of each sealed run (sorted, packed rows), and may raise an error.
    """

    tables: Iterable[pa.Table]
    check: Callable[[bytes], None] | None = None

    def runs(self, seal: SealPlan) -> Iterator[SealedRun]:
        """Yields the rows as sealed runs (sorted rows, packed for the writers of the buckets). Raises
        SchemaMismatchError for the first row that the table cannot hold.
        """
        sealer, acceptance = RunSealer(seal, origin=0), RowAcceptance(seal.schema)
        for rows in self.tables:
            yield from self._checked(sealer.add(acceptance.accept(rows)))
        yield from self._checked(sealer.finish())

    def _checked(self, runs: Iterable[SealedRun]) -> Iterator[SealedRun]:
        for run in runs:
            if self.check is not None:
                self.check(run.partition)
            yield run
