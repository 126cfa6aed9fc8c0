"""The process that Spark forks its Python workers from, with loaded what the tasks of batches need.

Without it each worker loads that for itself: at the start of a job, and again after each minute without work, as Spark
ends workers that are idle. Spark starts this module where `spark.python.daemon.module` names it, on each executor, so
that bucketline has to be installed there.

Source: Spark 4.0 PythonWorkerFactory.startDaemon, pyspark.daemon.
"""

from collections.abc import Callable

from pyspark.daemon import manager

from bucketline.streaming.tasks.first_tasks import LOADED
from bucketline.streaming.tasks.worker import load_lazy_modules, spare_what_is_loaded


def main(serve: Callable[[], None] = manager) -> None:
    """Forks workers until Spark ends."""
    assert LOADED, "loaded with their modules"
    load_lazy_modules()
    spare_what_is_loaded()
    serve()


if __name__ == "__main__":
    main()
