"""The process from which Spark forks its Python workers. It has already loaded the modules that tasks of batches need.

Without this process each worker loads the modules itself: at the start of a job, and again after each minute without
work, because Spark ends idle workers. `spark.python.daemon.module` contains the name of this module, and Spark starts
it on each executor, so bucketline has to be installed there.
Source: Spark 4.0 PythonWorkerFactory.startDaemon, pyspark.daemon.
"""

from collections.abc import Callable

from pyspark.daemon import manager

from bucketline.streaming.tasks.first_tasks import LOADED
from bucketline.streaming.worker import load_lazy_modules, spare_what_is_loaded


def main(serve: Callable[[], None] = manager) -> None:
    """Forks workers until Spark ends."""
    assert LOADED, "loaded with their modules"
    load_lazy_modules()
    spare_what_is_loaded()
    serve()


if __name__ == "__main__":
    main()
