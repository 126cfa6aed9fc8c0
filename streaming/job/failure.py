"""What an error of Spark says in one line: the error of ours inside it, or its own cause.

Spark hands on what its Python side raised as text only: tracebacks of several processes, one inside the other.
"""

import re
from enum import Enum

from bucketline.conf.errors import BucketlineError

_OURS = re.compile(r"\bbucketline\.[\w.]+\.(\w+): ([^\n]*)")
_CAUSE = re.compile(
    r"^(?:: |Caused by: )?(?:[A-Za-z_$][\w$]*\.)*([A-Z][\w$]*(?:Error|Exception)): (\S[^\n]*)$", re.MULTILINE
)
_WRAPPERS = ("Py4JJavaError", "Py4JException", "PythonException", "SparkException", "StreamingQueryException")
"""Errors that tell that there was another one."""
_CODED = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ")
_STREAM_FAILED = re.compile(r"^\[STREAM_FAILED\].*?terminated with exception: ", re.DOTALL)
_JVM_LOST = (
    "Answer from Java side is empty",
    "Error while sending or receiving",
    "Connection refused",
    "Connection reset",
)


class SparkLog(Enum):
    """What Spark and Py4J log of an error that ends the job: nothing, as the job reports it, or all they have."""

    OURS_ONCE = "ours once"
    EVERYTHING = "everything"


class SparkFailedError(BucketlineError):
    """Spark ended the query for a reason of its own; what the batch had not committed is written at the next start."""

    code = "SPARK_FAILED"


class SparkLostError(BucketlineError):
    """Spark's JVM has ended under the job; what the batch had not committed is written at the next start."""

    code = "SPARK_LOST"


def error_within(text: str) -> BucketlineError | None:
    """The error of ours that an error of Spark tells of; None where it tells of none."""
    kinds = _kinds_by_name(BucketlineError)
    told = [(name, message.strip()) for name, message in _OURS.findall(text) if name in kinds]
    if not told:
        return None
    # Causes come first in what Python prints.
    name, message = told[-1]
    return kinds[name](message)


def cause_line(text: str) -> str:
    """The line that says why: the last error that Spark has a code for and the innermost cause, or the first line."""
    found = [(name, message.strip()) for name, message in _CAUSE.findall(text)]
    coded = [message for _, message in found if _CODED.match(message) and not _STREAM_FAILED.match(message)]
    telling = [f"{name}: {message}" for name, message in found if name not in _WRAPPERS and message not in coded]
    if coded or telling:
        return " / ".join((*coded[-1:], *telling[-1:]))
    return (_STREAM_FAILED.sub("", text).strip().splitlines() or ["no message"])[0]


def explain(text: str) -> BucketlineError:
    """The error to report for what Spark or Py4J raised, given as text."""
    if any(sign in text for sign in _JVM_LOST) and "bucketline." not in text:
        return SparkLostError("Spark's JVM ended while the job ran: it was killed, or ran out of memory")
    return error_within(text) or SparkFailedError(f"Spark ended the query: {cause_line(text)}")


def _kinds_by_name(kind: type[BucketlineError]) -> dict[str, type[BucketlineError]]:
    found = {kind.__name__: kind}
    for narrower in kind.__subclasses__():
        found |= _kinds_by_name(narrower)
    return found
