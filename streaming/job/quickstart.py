"""The streaming run behind `bucketline quickstart`: orders are generated as files and streamed in micro-batches.

All files are in one folder: `input` (one file of events for each batch), `checkpoint`, and the table. The generator
remembers the expected rows, so that the result can be checked.
"""

import json
import logging
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from bucketline.conf.errors import OptionError
from bucketline.conf.wording import counted
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.store.table.table import Table, create_table, handle_of
from bucketline.state.store.warehouse.catalog import Catalog
from bucketline.state.types.row_kind import RowKind
from bucketline.streaming.batch.failure import SparkLog, explained
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.job.await_end import await_end
from bucketline.streaming.job.ending import Ending
from bucketline.streaming.job.gate import BatchGate
from bucketline.streaming.job.open_session import open_session
from bucketline.streaming.job.start.silence import Silence, broken_silence
from bucketline.streaming.job.start_report import StartReport

COLUMNS = "id BIGINT NOT NULL, customer STRING, status STRING, amount DECIMAL(12, 2), updated TIMESTAMP(6)"
_DATABASE, _NAME = "shop", "orders"
TABLE = f"{_DATABASE}.{_NAME}"
OPTIONS = {"bucket": "2", "num-sorted-run.compaction-trigger": "3"}

_SPARK_COLUMNS = (
    "id BIGINT, customer STRING, status STRING, amount DECIMAL(12, 2), updated TIMESTAMP_NTZ, "
    f"{ROW_KIND_COLUMN} TINYINT"
)
_SEED = 7
_CUSTOMERS = ("Ada", "Grace", "Edsger", "Barbara", "Donald", "Frances")
_NEXT_STATUS = {"placed": "paid", "paid": "shipped", "shipped": "delivered"}
_START = datetime(2026, 1, 1, 9)

Order = dict[str, object]


@dataclass(frozen=True, slots=True)
class QuickstartRun:
    """A finished run: the table, and the expected orders by id.

    `ended_by` is the name of the signal that ended the run before all batches were written; None if no signal did.
    """

    table: Table
    expected: dict[int, Order]
    batch_count: int
    event_count: int
    ended_by: str | None = None

    def explains(self, rows: pa.Table) -> bool:
        """Returns True if `rows` are exactly the expected rows."""
        wanted = pa.Table.from_pylist([self.expected[i] for i in sorted(self.expected)], schema=rows.schema)
        return bool(rows.sort_by("id").equals(wanted))

    def __str__(self) -> str:
        events, batches = counted(self.event_count, "event"), counted(self.batch_count, "batch", "batches")
        return f"{events} in {batches} make {counted(len(self.expected), 'order')}"


def run_quickstart(
    directory: str | None,
    *,
    catalog: Catalog | None = None,
    batches: int,
    events: int,
    tell: Callable[[str], None],
    ending: Ending,
    log: SparkLog = SparkLog.OURS_ONCE,
) -> QuickstartRun:
    """Generates events, streams them into a table, and returns the finished run. `tell` gets lines of progress, and
    `ending` says when to end.

    The table is in the folder; if a catalog is given, the table is `TABLE` of the catalog. Raises OptionError for a
    folder that is not empty and if Spark does not start, and BucketlineError if the query fails or the catalog already
    has a table of that name.
    """
    root = _empty_folder(directory)
    table = _new_table(root, catalog)
    tell(f"all files are in {root}{'' if catalog is None else f', the files of the table in {table.uri}'}")
    expected: dict[int, Order] = {}
    for number in range(batches):
        _write_batch(root / "input", number, list(_events(expected, number, events)))
    tell("starting Spark; its first batch takes longest")
    own = _settings(root)
    with (
        broken_silence("starting Spark", tell) as silence,
        explained(),
        open_session("bucketline quickstart", None, ending, log, silence, own) as spark,
        _progress_to(tell),
    ):
        ended_early = _stream(spark, root, table, ending, silence)
    return QuickstartRun(table, expected, batches, batches * events, ending.asked_by if ended_early else None)


def _new_table(root: Path, catalog: Catalog | None) -> Table:
    if catalog is None:
        return create_table(str(root / f"{_DATABASE}.db" / _NAME), COLUMNS, primary_key=["id"], options=OPTIONS)
    catalog.create_database(_DATABASE, exist_ok=True)
    return catalog.create_table(TABLE, COLUMNS, primary_key=["id"], options=OPTIONS)


def _stream(spark: Any, root: Path, table: Table, ending: Ending, silence: Silence) -> bool:
    """Streams all files, one for each batch. Returns True if the run was asked to end before all files were read."""
    source = spark.readStream.schema(_SPARK_COLUMNS).option("maxFilesPerTrigger", 1).json(str(root / "input"))
    gate = BatchGate(TableSink(table.uri, storage_options=handle_of(table).storage))
    writer = source.writeStream.foreachBatch(gate).option("checkpointLocation", str(root / "checkpoint"))
    silence.doing("starting the query")
    await_end(writer.trigger(availableNow=True).start(), gate, ending, silence, StartReport())
    return gate.is_closed


def _events(orders: dict[int, Order], batch: int, count: int) -> Iterator[tuple[RowKind, Order]]:
    """Yields the `count` events of a batch: orders, each with its row kind. About half of the events are new orders,
    the others are changes and deletes of known orders. The order book `orders` is updated with each event.
    """
    chance = random.Random(_SEED * 1_000_003 + batch)
    for number in range(count):
        at = _START + timedelta(minutes=batch, microseconds=number)
        order = orders.get(chance.choice(list(orders)[-200:])) if orders and chance.random() < 0.5 else None
        if order is None:
            order_id = batch * count + number
            amount = Decimal(chance.randrange(100, 100_000)) / 100
            orders[order_id] = {
                "id": order_id,
                "customer": chance.choice(_CUSTOMERS),
                "status": "placed",
                "amount": amount,
                "updated": at,
            }
            yield RowKind.INSERT, orders[order_id]
        elif order["status"] not in _NEXT_STATUS or chance.random() < 0.2:
            del orders[int(str(order["id"]))]
            yield RowKind.DELETE, order | {"updated": at}
        else:
            changed = order | {"status": _NEXT_STATUS[str(order["status"])], "updated": at}
            orders[int(str(order["id"]))] = changed
            yield RowKind.UPDATE_AFTER, changed


def _write_batch(folder: Path, number: int, events: list[tuple[RowKind, Order]]) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / f"batch-{number:03d}.json"
    lines = [json.dumps({**order, ROW_KIND_COLUMN: kind.value}, default=str) for kind, order in events]
    path.write_text("\n".join(lines) + "\n")
    # Spark takes files in the order of their times.
    second = 1_700_000_000 + number
    os.utime(path, (second, second))


def _empty_folder(directory: str | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="bucketline-quickstart-"))
    root = Path(directory).absolute()
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise OptionError(f"{root} is not empty; choose a new folder", key="directory", path=str(root))
    root.mkdir(parents=True, exist_ok=True)
    return root


def _settings(root: Path) -> dict[str, str]:
    """Returns the settings of a local Spark that writes nothing outside the folder."""
    return {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.local.dir": str(root / "spark"),
        "spark.sql.warehouse.dir": str(root / "spark"),
    }


@contextmanager
def _progress_to(tell: Callable[[str], None]) -> Iterator[None]:
    """Passes the sink's log line about each batch to `tell`."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(record.getMessage())

    logger, handler = logging.getLogger("bucketline.progress"), Lines()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
