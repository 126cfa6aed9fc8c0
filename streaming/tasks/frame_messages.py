"""The rows of a DataFrame as messages of Arrow in an RDD of bytes, for a job whose first task reads few rows.

A query that hands rows to a function in Python is analysed, planned and compiled for each batch, which costs a small
one more than its rows. Spark bounds these messages by rows alone, and not by bytes as it does within queries: a message
has few rows, so that large ones fit into memory, and that costs where rows are many.

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
"""The most rows of a message. With Kafka's largest records (1 MiB unless the broker allows more) they take 128 MiB."""

ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_LARGE_TYPES = "spark.sql.execution.arrow.useLargeVarTypes"


@dataclass(frozen=True, slots=True)
class FrameMessages:
    """Messages in an RDD of Java, and what they are of."""

    rdd: Any
    schema: pa.Schema


def frame_messages(spark: Any, frame: Any, *, is_alone: bool = True) -> FrameMessages | None:
    """The rows, for one task that is alone, one partition after the other in their order; or for a task for each
    partition. None where this Spark hands them out in another way."""
    large = parse_bool(spark.conf.get(_LARGE_TYPES, "false"))
    try:
        messages = _messages(spark, frame).toJavaRDD()
    except Py4JJavaError:
        raise
    except Py4JError:
        # What Py4J says of a method that this version does not have.
        return None
    # Where there is no partition, Spark joins them into none; and a job is to have a task.
    joined = messages.coalesce(1) if is_alone else messages
    rdd = joined if messages.getNumPartitions() else nothing(spark, 1)
    return FrameMessages(rdd, frame_schema(frame, has_large_types=large))


def _messages(spark: Any, frame: Any) -> Any:
    """The RDD, planned with few rows a message; what the session said before holds again afterwards."""
    before = spark.conf.get(ARROW_ROWS, "10000")
    if before.isdigit() and 0 < int(before) < MESSAGE_ROWS:
        return frame._jdf.toArrowBatchRdd()
    with held_setting(spark, ARROW_ROWS, str(MESSAGE_ROWS), default="10000"):
        return frame._jdf.toArrowBatchRdd()
