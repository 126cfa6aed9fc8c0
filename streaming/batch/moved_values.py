"""The driver's part in finding values for rows whose primary key has changed. Such a row may leave out values (the
source did not send them), which must be taken from the row with the old key.

If rows of a batch lack such values, the driver asks the tasks for the rows with the old keys: the tasks read the batch
again and send them. The driver reads stored rows from the table, and sends the values to the tasks. The tasks then read
the batch once more and put in the values. The stored rows are read from the snapshot on which the batch is planned. The
batch deletes the rows of the old keys, so the commit fails if another writer has written these rows since that snapshot
(`AppendCheck.ROWS_READ`).
"""

from collections.abc import Sequence
from functools import partial, reduce
from operator import and_

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.conf.sources.message_options import UNAVAILABLE_KEY
from bucketline.state.lsm.merge.engines import merging_of
from bucketline.state.store.table.rows_to_change import current_rows
from bucketline.state.store.write.table_at import TableAt
from bucketline.state.types.arrow import arrow_schema
from bucketline.state.types.buffers import one_array
from bucketline.state.types.logical import DataField
from bucketline.state.types.order import Direction
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.moves.find_values import MovedOrder, find_values, no_values, old_keys
from bucketline.streaming.decode.moves.follow_moves import AT, TOPIC, encoded
from bucketline.streaming.decode.moves.key_moves import Asking, FoundValues, from_ipc, to_ipc

_MOST_BYTES = 256 << 20
"""The most bytes of rows with old keys that the driver receives from tasks or reads from the table, and the most bytes
of values that it sends to tasks.
"""


def next_moves(
    at: TableAt, step: DecodeStep, said: Sequence[bytes], *, is_emptied: bool = False
) -> Asking | FoundValues | None:
    """Returns what the tasks get when they read the batch the next time: the old keys whose rows they must send
    (Asking), or the values that they must put in (FoundValues). If `step` has values already, these are returned.
    Returns None if no row lacks values.

    `step` is the decode step with which the tasks have read the batch, and `said` is what they have sent to the driver.
    If `is_emptied` is true, the batch replaces all rows of the table, so no values come from stored rows. Raises
    OptionError if the rows or values have more bytes than the driver takes.
    """
    if isinstance(step.moves, FoundValues):
        return step.moves
    _check_size(sum(map(len, said)))
    tables = [from_ipc(octets) for octets in said]
    if step.moves is None:
        return Asking(to_ipc(_distinct(pa.concat_tables(tables)))) if tables else None
    asked, key = from_ipc(step.moves.asks), step.follower.key
    if not tables:
        return FoundValues(to_ipc(no_values()))
    answers = pa.concat_tables(tables)
    more = old_keys(answers, asked, key)
    if more.num_rows:
        nulls = {name: pa.nulls(more.num_rows, pa.string()) for name in (TOPIC, AT)}
        wanted = pa.table({**{f.name: more[f.name] for f in key}, **nulls})
        return Asking(to_ipc(_distinct(pa.concat_tables([asked, wanted.select(asked.column_names)]))))
    stored = _no_rows if is_emptied else _stored_rows
    values = find_values(answers, _order_of(at, step), partial(stored, at, key))
    _check_size(values.nbytes)
    return FoundValues(to_ipc(values))


def _order_of(at: TableAt, step: DecodeStep) -> MovedOrder:
    merge, merging = at.plan.schema.settings.merge, merging_of(at.plan.schema)
    direction: Direction = "descending" if merge.newest_is_smallest else "ascending"
    return MovedOrder(
        step.keeping.names,
        step.follower.key,
        tuple((name, direction) for name in merge.sequence_fields),
        null_keeps=merging.null_keeps,
        keeps_deleted=merge.ignore_delete,
    )


def _stored_rows(at: TableAt, key: Sequence[DataField], keys: pa.Table, columns: tuple[str, ...]) -> pa.Table:
    """Returns the rows of the table that have one of the keys, with the key columns and `columns`. The driver holds all
    these rows in memory. Raises OptionError if the rows have more bytes than the driver takes.
    """
    names = list(dict.fromkeys((*(f.name for f in key), *columns)))
    found = [pa.Table.from_batches([], arrow_schema(at.plan.schema.fields)).select(names)]
    wanted = encoded(keys, key)
    expression = reduce(and_, (pc.field(f.name).isin(one_array(keys[f.name]).unique()) for f in key))
    size = 0
    for batch in current_rows(at, expression, None):
        rows = pa.Table.from_batches([batch]).select(names)
        found.append(rows.filter(pc.is_in(encoded(rows, key), value_set=wanted)).cast(found[0].schema))
        size += found[-1].nbytes
        _check_size(size)
    return pa.concat_tables(found)


def _no_rows(at: TableAt, key: Sequence[DataField], keys: pa.Table, columns: tuple[str, ...]) -> pa.Table:
    names = list(dict.fromkeys((*(f.name for f in key), *columns)))
    return pa.Table.from_batches([], arrow_schema(at.plan.schema.fields)).select(names)


def _distinct(asks: pa.Table) -> pa.Table:
    return asks.group_by(asks.column_names, use_threads=False).aggregate([])


def _check_size(size: int) -> None:
    """Raises OptionError if `size` is more bytes than the driver takes."""
    if size > _MOST_BYTES:
        raise OptionError(
            "updates of one batch changed the primary keys of many rows and left out values of these rows: the rows "
            f"with the old keys have {size >> 20} MiB, and the driver holds at most {_MOST_BYTES >> 20} MiB; let a "
            f"batch have fewer records (source.options.maxOffsetsPerTrigger), or set {UNAVAILABLE_KEY.key} to reject",
            key=UNAVAILABLE_KEY.key,
        )
