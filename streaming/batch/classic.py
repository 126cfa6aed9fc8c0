"""Which Spark sessions can be worked with: those whose driver is this process."""

from typing import Any

from bucketline.conf.errors import OptionError

_CONNECT = "pyspark.sql.connect"


def require_classic(spark: Any) -> None:
    """Returns if a session is a classic one. Raises OptionError for Spark Connect, with the remedy.

    Under Connect the driver is another process: neither a query's id nor its checkpoint can be asked for, and a
    function of foreachBatch is called by a worker of the server.
    """
    if type(spark).__module__.startswith(_CONNECT):
        raise connect_refused()


def connect_refused() -> OptionError:
    """What is said where Spark Connect is asked for."""
    return OptionError(
        "this is Spark Connect, and bucketline needs a classic session, whose driver runs here: unset SPARK_REMOTE, "
        "leave out .remote(...), or run the job with spark-submit",
        key="spark",
    )
