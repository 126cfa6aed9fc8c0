"""A batch whose columns are not those of the table: before a row is read, on the driver, once.

`evolve` changes the table and commits the new schema; `ignore` leaves unknown columns out; `fail` names them. With the
first two, columns that only the table has (another query may have added them) are null in the batch.
"""

from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from bucketline.state.bucket.intake import ROW_KIND_COLUMN
from bucketline.state.commit.evolve import EvolutionPolicy
from bucketline.state.store.alter import evolve_table
from bucketline.state.store.write_session import WriteSession
from bucketline.streaming.preflight import check_columns


def fit_frame(frame: Any, session: WriteSession) -> Any:
    """The batch with exactly the table's columns (and `_row_kind`), after the table was changed if the policy says so.

    Raises SchemaMismatchError for columns that fit neither now nor after a change, and for names that occur twice.
    """
    policy = EvolutionPolicy(session.plan.sink.schema_evolution)
    if policy is EvolutionPolicy.FAIL:
        check_columns(frame.columns, session.plan.schema)
        return frame
    known = {f.name for f in session.plan.schema.fields}
    data_columns = [c for c in frame.columns if c != ROW_KIND_COLUMN or c in known]
    if policy is EvolutionPolicy.EVOLVE:
        evolve_table(session.table, to_arrow_schema(frame.select(*data_columns).schema), policy)
        session.refresh()
        known = {f.name for f in session.plan.schema.fields}
    fitting = frame.select(*[c for c in frame.columns if c in known or c == ROW_KIND_COLUMN])
    for f in session.plan.schema.fields:
        if f.name not in fitting.columns and f.type.nullable:
            fitting = fitting.withColumn(f.name, F.lit(None))
    check_columns(fitting.columns, session.plan.schema)
    return fitting
