"""Cheap checks on the driver before the first task. Each error says what to do."""

import logging
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from bucketline.conf.errors import OptionError
from bucketline.conf.spark_options import check_spark_settings
from bucketline.state.bucket.accept_rows import ROW_KIND_COLUMN
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema

_LOG = logging.getLogger(__name__)
_CONNECT = "pyspark.sql.connect"


def require_classic(spark: Any) -> None:
    """Checks that a session is a classic session. Raises OptionError with the remedy for a session of Spark Connect.

    With Spark Connect the driver is another process: the query's id and checkpoint are out of reach, and Spark calls
    the function of foreachBatch in a worker of the server.
    """
    if type(spark).__module__.startswith(_CONNECT):
        raise connect_refused()


def connect_refused() -> OptionError:
    """Returns the error to raise for a session of Spark Connect, which the sink does not support."""
    return OptionError(
        "this is a session of Spark Connect, but bucketline needs a classic session, whose driver is "
        "this process: unset SPARK_REMOTE, "
        "leave out .remote(...), or run the job with spark-submit",
        key="spark",
    )


def check_columns(names: Sequence[str], schema: TableSchema) -> None:
    """Compares a DataFrame's columns with the table's columns, by name.

    Raises SchemaMismatchError with the columns that are unknown, missing or present twice.
    """
    known = [f.name for f in schema.fields]
    twice = sorted({n for n in names if list(names).count(n) > 1})
    if twice:
        raise SchemaMismatchError(
            f"the input has column {twice[0]!r} twice; rename or drop one of the two", column=twice[0]
        )
    unknown = [n for n in names if n not in known and n != ROW_KIND_COLUMN]
    if unknown:
        raise SchemaMismatchError(
            f"column {unknown[0]!r} of the input is not in the table ({', '.join(known)}); drop it from the input, or "
            "add it to the table",
            column=unknown[0],
        )
    missing = [n for n in known if n not in names]
    if missing:
        raise SchemaMismatchError(
            f"column {missing[0]!r} of the table is not in the input ({', '.join(names)}); add the column "
            "to the input, or, if the column may be null, select a null of the column's type",
            column=missing[0],
        )
    kind_field = schema.settings.merge.row_kind_field
    if kind_field is not None and kind_field not in known:
        raise SchemaMismatchError(
            f"the option rowkind.field names {kind_field!r}, which is not a column of the table; "
            "add the column, or change the option",
            column=kind_field,
        )


def check_session(spark: Any) -> None:
    """Checks that a session's settings allow what the sink needs, and logs advice once for each application.

    The settings of an application do not change, and reading them costs calls into the JVM, so they are read once.
    Raises OptionError for settings with which the sink cannot work.
    """
    context = spark.sparkContext
    application = str(context.applicationId)
    if application not in _checked:
        for sentence in _advice(dict(context.getConf().getAll())):
            _LOG.warning("%s", sentence)
        _checked.add(application)


def worker_python_advice(settings: dict[str, str]) -> str | None:
    """Returns advice if the workers may start another Python than the driver; None if they start the same Python."""
    named = settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    started = shutil.which(named or "python3")
    if started is not None and _environment_of(started) == _environment_of(sys.executable):
        return None
    return (
        f"workers start {named or 'the python3 that is first on PATH'}, but the driver runs "
        f"{sys.executable}; both need "
        "bucketline's dependencies: if a task cannot import them, set PYSPARK_PYTHON to the driver's Python"
    )


def _environment_of(python: str) -> tuple[str, str]:
    """Takes the path of a Python program. Returns the real path of its folder, which decides what this Python imports,
    and the real path of the program.
    """
    return os.path.realpath(os.path.dirname(python)), os.path.realpath(python)


def _advice(settings: dict[str, str]) -> tuple[str, ...]:
    python = worker_python_advice(settings)
    return (*check_spark_settings(settings), *([] if python is None else [python]))


_checked: set[str] = set()
"""The applications whose settings have been checked."""
