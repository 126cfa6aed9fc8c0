"""Turns an error of Spark into one line: the BucketlineError that is found in the error's text, or else the cause that
Spark reports.

Spark passes on errors of its Python side only as text: nested tracebacks of several processes.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from types import TracebackType

from bucketline.conf.errors import BucketlineError, given

_OURS = re.compile(r"\bbucketline\.[\w.]+\.(\w+): ([^\n]*)")
_CAUSE = re.compile(
    r"^(?:: |Caused by: )?(?:[A-Za-z_$][\w$]*\.)*([A-Z][\w$]*(?:Error|Exception)): (\S[^\n]*)$", re.MULTILINE
)
_WRAPPERS = ("Py4JJavaError", "Py4JException", "PythonException", "SparkException", "StreamingQueryException")
"""Classes of errors that only report that another error happened."""
_CODED = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ")
_STREAM_FAILED = re.compile(r"^\[STREAM_FAILED\].*?terminated with exception: ", re.DOTALL)
_CALL_UNANSWERED = re.compile(r"An error occurred while calling \S+\Z")
"""The message of Py4J if the JVM ends before it answers. If the JVM answers, the message has a Java trace."""
_FILE_READ = re.compile(r"\[FAILED_READ_FILE[A-Z_.]*\] Encountered error while reading file (\S+?)\.?(?=\s|$)")
_MALFORMED = re.compile(r"\[MALFORMED_RECORD_IN_PARSING[A-Z_.]*\]")
_OF_A_STOP = re.compile(r"Interrupted(?:IO)?Exception|ClosedByInterruptException|cancelled part of cancelled job group")
_TALKS_TO_JVM = ("py4j", "pyspark")


class SparkLog(Enum):
    """Says what Spark and Py4J log about an error that ends the job. With OURS_ONCE they log nothing, because the job
    itself reports the error in one line. With EVERYTHING they log as usual.
    """

    OURS_ONCE = "ours once"
    EVERYTHING = "everything"


class SparkFailedError(BucketlineError):
    """Spark ended the query for a reason that is not an error of bucketline. The next start repeats a batch that was
    not committed.

    `said` is Spark's whole text, for programs that search it for a reason; it is never shown. `file` is the file that
    Spark could not read. `malformed` is true if a record in the file does not have the source's format.
    """

    code = "SPARK_FAILED"
    said = ""

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        file: str | None = None,
        malformed: bool = False,
        **fields: object,
    ) -> None:
        super().__init__(message, path=path, malformed=malformed, **given(file=file), **fields)
        self.file, self.malformed = file, malformed


class SparkLostError(BucketlineError):
    """Spark's JVM ended while the job ran. The next start repeats a batch that was not committed."""

    code = "SPARK_LOST"


def error_within(text: str) -> BucketlineError | None:
    """Returns the BucketlineError in the text of an error of Spark; None if the text has none."""
    kinds = _kinds_by_name(BucketlineError)
    errors = [(name, message.strip()) for name, message in _OURS.findall(text) if name in kinds]
    if not errors:
        return None
    # Python prints causes first.
    name, message = errors[-1]
    return kinds[name](message)


def cause_line(text: str) -> str:
    """Returns one line that says the cause: the last error with a Spark error class, and the last other error that says
    something. If the text has no such errors, returns the first line of the text.
    """
    errors = [(name, message.strip()) for name, message in _CAUSE.findall(text)]
    coded = [message for _, message in errors if _CODED.match(message) and not _STREAM_FAILED.match(message)]
    telling = [f"{name}: {message}" for name, message in errors if name not in _WRAPPERS and message not in coded]
    if coded or telling:
        return " / ".join((*coded[-1:], *telling[-1:]))
    return (_STREAM_FAILED.sub("", text).strip().splitlines() or ["no message"])[0]


def explain(error: BaseException, within: BaseException | None = None) -> BucketlineError:
    """Returns the error to report for an error of Spark or Py4J: the BucketlineError that the text of the error
    contains, if there is one; SparkLostError if Spark's JVM has ended; otherwise a SparkFailedError. `within` is the
    error that the sink of the query raised before, None if it raised none; the text of `within` is searched, too.
    """
    text = "\n".join(said_by(e) for e in (error, within) if e is not None)
    inner = error_within(text)
    if inner is not None and not isinstance(inner, SparkFailedError):
        return inner
    if is_jvm_lost(error) or (within is not None and is_jvm_lost(within)):
        return SparkLostError("Spark's JVM ended while the job ran: the JVM was killed, or it ran out of memory")
    if isinstance(within, SparkFailedError):
        return within
    failed = inner or _failed(text)
    assert isinstance(failed, SparkFailedError)
    failed.said = text
    return failed


def error_of_task(error: Exception) -> BucketlineError | None:
    """Returns the BucketlineError that a task has raised, if `error` is the error of Spark about this task; otherwise
    None. Only the class and the message of the returned error are those of the task's error. Returns None if the query
    is being stopped.
    """
    if not _is_of_spark(error) or _OF_A_STOP.search(_text_of(error)):
        return None
    return error_within(said_by(error))


def _failed(text: str) -> SparkFailedError:
    cause, file = cause_line(text), _FILE_READ.search(text)
    if file is None:
        return SparkFailedError(f"Spark ended the query: {cause}")
    where = "" if file[1] in cause else f", it could not read {file[1]}"
    malformed = _MALFORMED.search(text) is not None
    return SparkFailedError(f"Spark ended the query{where}: {cause}", file=file[1], malformed=malformed)


def said_by(error: BaseException) -> str:
    """Returns the text of an error and its causes."""
    said, seen = [], set[int]()
    following: list[BaseException | None] = [error]
    while following:
        current = following.pop(0)
        if current is not None and id(current) not in seen:
            seen.add(id(current))
            said.append(f"{current}\n{current.said}" if isinstance(current, SparkFailedError) else _text_of(current))
            following += [current.__cause__, current.__context__]
    return "\n".join(said)


def _text_of(error: BaseException) -> str:
    """Returns the text of an error, also of an error of Spark whose session has ended.

    PySpark asks the JVM for the text of such an error. After the session has ended there is no JVM, and PySpark raises
    AssertionError. Then the text is put together from attributes of the error.
    """
    try:
        return str(error)
    except AssertionError:
        parts = (getattr(error, name, None) for name in ("_desc", "_stackTrace"))
        return "\n".join(part for part in parts if part) or repr(type(error))


def is_jvm_lost(error: BaseException) -> bool:
    """Returns True if an error means that Spark's JVM does not answer.

    The check looks at where the error was raised and not at its text, because connections to sources and storages are
    refused with the same texts.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, ConnectionError):
        return _raised_in(error.__traceback__) in _TALKS_TO_JVM
    if "Py4JJavaError" in kinds:
        return False
    return "Py4JNetworkError" in kinds or ("Py4JError" in kinds and _CALL_UNANSWERED.match(str(error)) is not None)


@contextmanager
def explained() -> Iterator[None]:
    """Turns errors of Spark and Py4J that are raised in the `with` block into BucketlineErrors, with the original error
    as cause.
    """
    try:
        yield
    except Exception as e:
        if not _is_of_spark(e):
            raise
        raise explain(e) from e


@contextmanager
def explained_in_one_line() -> Iterator[None]:
    """Raises errors of Spark and Py4J as BucketlineErrors. Python prints these errors without Spark's tracebacks, which
    are in the error's `__context__`.

    The error of a query that is being stopped is not changed, because Spark recognises by its text that nothing has
    failed. Source: Spark 4.0 StreamExecution.isInterruptedByStop.
    """
    try:
        yield
    except Exception as e:
        if not _is_of_spark(e) or _OF_A_STOP.search(_text_of(e)):
            raise
        raise explain(e) from None


def _is_of_spark(error: BaseException) -> bool:
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return bool({"PySparkException", "Py4JError"} & kinds) or is_jvm_lost(error)


def _raised_in(trace: TracebackType | None) -> str | None:
    """Returns the package of the function that raised the error. If a socket module of Python raised it, returns the
    package that called the socket.
    """
    innermost = None
    while trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        innermost = innermost if package in ("socket", "ssl") else package
        trace = trace.tb_next
    return innermost


def _kinds_by_name(kind: type[BucketlineError]) -> dict[str, type[BucketlineError]]:
    kinds = {kind.__name__: kind}
    for narrower in kind.__subclasses__():
        kinds |= _kinds_by_name(narrower)
    return kinds
