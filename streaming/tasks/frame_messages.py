"""The rows of a DataFrame as Arrow IPC messages in an RDD of bytes, for a job whose first task reads few rows.

A query that passes rows to a Python function is analysed, planned and compiled for each batch, which costs more than
the rows of a small batch. But in a query Spark limits the bytes of an Arrow message; here Spark limits only its rows.
So a message must have few rows to fit into memory, which makes this way expensive for many rows.
Source: Spark 4.0 to 4.3 Dataset.toArrowBatchRdd, ArrowConverters.ArrowBatchIterator, CoalesceExec.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError

from bucketline.conf.option import parse_bool
from bucketline.streaming.tasks.bytes_job import nothing
from bucketline.streaming.tasks.frame_schema import frame_schema
from bucketline.streaming.tasks.session_settings import held_setting

MESSAGE_ROWS = 128
"""The most rows of a message. Rows with Kafka's largest records (1 MiB unless the broker allows more) take 128 MiB."""

ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"


@dataclass(frozen=True, slots=True)
class FrameMessages:
    """The rows of a DataFrame as Arrow IPC messages in a Java RDD of bytes, and the schema of the rows."""

    rdd: Any
    schema: pa.Schema


def frame_messages(spark: Any, frame: Any, *, is_alone: bool = True) -> FrameMessages | None:
    """Returns the rows of a DataFrame as an RDD of Arrow IPC messages, each with some rows. If `is_alone` is true, one
    task gets all messages, in the order of the partitions; otherwise there is one task for each partition.

    Returns None if this version of Spark lacks the methods for this.
    """
    large = parse_bool(spark.conf.get(_LARGE_TYPES, "false"))
    try:
        messages = _messages(spark, frame).toJavaRDD()
    except Py4JJavaError:
        raise
    except Py4JError:
        # Py4J raises this error if this version of Spark lacks a method.
        return None
    # A DataFrame without partitions would give an RDD without partitions, but a job must have a task.
    joined = messages.coalesce(1) if is_alone else messages
    rdd = joined if messages.getNumPartitions() else nothing(spark, 1)
    return FrameMessages(rdd, frame_schema(frame, has_large_types=large))


def _messages(spark: Any, frame: Any) -> Any:
    """Returns Spark's RDD of the DataFrame's Arrow IPC messages. Each message has few rows, because Spark plans the RDD
    with a smaller setting for the number of rows. Afterwards the session has its old setting again.
    """
    before = spark.conf.get(ARROW_ROWS, "10000")
    if before.isdigit() and 0 < int(before) < MESSAGE_ROWS:
        return frame._jdf.toArrowBatchRdd()
    with held_setting(spark, ARROW_ROWS, str(MESSAGE_ROWS), default="10000"):
        return frame._jdf.toArrowBatchRdd()
