"""Accepts rows for a table, or refuses them with a reason.

A row must fit the table's columns, types and row kinds, and the rules of the merge engine.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bucketline.state.bucket.accept_rows import AcceptedRows, accept_rows, poison_reasons
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.engines import merging_of


class RowAcceptance:
    """Checks the rows of one table. The table's options are read once, when the object is created."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._checks = merging_of(schema).row_checks()

    def accept(self, data: pa.Table, feeds: NDArray[Any] | None = None) -> AcceptedRows:
        """Checks all rows and returns them in the table's types, with their row kinds. `feeds` holds the feed (topic
        partition) of each row. Raises SchemaMismatchError for the first row that cannot be stored or merged.
        """
        accepted_rows = accept_rows(data, self._schema)
        if self._checks is not None:
            self._checks.refuse(accepted_rows.rows, accepted_rows.kinds)
        return accepted_rows.of_feeds(feeds)

    def accept_good(
        self, data: pa.Table, feeds: NDArray[Any] | None = None
    ) -> tuple[AcceptedRows, tuple[tuple[pa.Table, pa.Array], ...]]:
        """Checks all rows. Returns the rows that can be stored and merged, in the table's types, with their row kinds.
        Also returns the refused rows, unchanged, each with a string that says why the row is refused.

        `feeds` holds the feed (topic partition) of each row. Raises SchemaMismatchError if the columns themselves do
        not fit.
        """
        refused: list[tuple[pa.Table, pa.Array]] = []
        reasons = poison_reasons(data, self._schema)
        if reasons is not None:
            refused.append((data.filter(pc.is_valid(reasons)), reasons.drop_null()))
            good = pc.is_null(reasons)
            data = data.filter(good)
            feeds = None if feeds is None else feeds[np.asarray(pc.indices_nonzero(good))]
        accepted_rows = accept_rows(data, self._schema)
        unmergeable = None if self._checks is None else self._checks.reasons(accepted_rows.rows, accepted_rows.kinds)
        if unmergeable is not None:
            bad = pc.is_valid(unmergeable)
            refused.append((data.take(accepted_rows.input_rows(bad)), unmergeable.drop_null()))
            accepted_rows = accepted_rows.filter(pc.invert(bad))
        return accepted_rows.of_feeds(feeds), tuple(refused)
