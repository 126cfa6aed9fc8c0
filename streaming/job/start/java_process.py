"""Spark's JVM as a child process: what it prints, why it did not start, and its end."""

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

_STANDARD_ERROR = 2
_KEPT_BYTES = 1 << 16
_READ_BYTES = 1 << 13
_PATIENCE_SECONDS = 30.0

_UNRESOLVED = re.compile(r"unresolved dependency: ([^\]\n]+?)(?:, unresolved dependency|\]|\n|$)")
_DOWNLOAD = re.compile(r"download failed: ([^\],\n]+)")
_NO_JAVA = re.compile(
    r"JAVA_HOME is not set|java: (?:command )?not found|[^\n]*/java: No such file or directory"
    r"|Unable to locate a Java Runtime"
)
_OLD_JAVA = re.compile(
    r"UnsupportedClassVersionError|Unsupported (?:class file )?major(?:\.minor)? version|class file version \d+"
)
_CAUSE = re.compile(
    r"^(?:Exception in thread \"main\" (?:\S*\.)?(?P<thrown>\w+(?:Exception|Error)[^\n]*)"
    r"|(?P<error>(?:Error|Unrecognized option|Unrecognized VM option|Error occurred)[^\n]*))",
    re.MULTILINE,
)


class Printed:
    """The standard error of a process. It is passed on while it is printed. Its last part is also kept, until `forget`
    is called.

    To use it, start the process with `pipe` as its standard error, and call `started` afterwards.
    """

    def __init__(self) -> None:
        self._read, self.pipe = os.pipe()
        self._kept = bytearray()
        self._keeps = True
        self._thread = threading.Thread(target=self._pass_on, name="bucketline-java-prints", daemon=True)

    def started(self) -> None:
        """Closes this process's end of the pipe and begins to pass on what is printed. Must be called when the child
        process has got the pipe, or has ended.
        """
        os.close(self.pipe)
        self._thread.start()

    def forget(self) -> None:
        """Stops keeping the text that the process prints. From now on the text is only passed on."""
        self._keeps = False
        self._kept.clear()

    def text(self) -> str:
        """Returns the last part of what the process has printed. Waits until the process has ended."""
        self._thread.join(_PATIENCE_SECONDS)
        return self._kept.decode(errors="replace")

    def _pass_on(self) -> None:
        with suppress(OSError):
            while data := os.read(self._read, _READ_BYTES):
                if self._keeps:
                    self._kept += data
                    del self._kept[:-_KEPT_BYTES]
                _write(data)
        with suppress(OSError):
            os.close(self._read)


def _write(data: bytes) -> None:
    """Writes to the standard error of this process. Errors are ignored, so that the JVM never waits for a reader that
    has ended.
    """
    with suppress(OSError):
        sys.stderr.flush()
        while data:
            data = data[os.write(_STANDARD_ERROR, data) :]


def why_not_started(printed: str, error: str, packages: str | None) -> str:
    """Returns why Spark did not start, with the remedy. `printed` is what Spark's JVM printed, and `error` is the error
    of PySpark.

    `packages` are the Maven packages that Spark had to fetch.
    """
    missing = list(dict.fromkeys((*_UNRESOLVED.findall(printed), *_DOWNLOAD.findall(printed))))
    if missing:
        return (
            f"Spark could not fetch {', '.join(missing)}, which --packages or spark.jars.packages "
            f"({packages or 'of Spark itself'}) asks for: check the name and the version, and whether this machine "
            "reaches the repository (spark.jars.repositories names others; --jars takes files instead)"
        )
    if _NO_JAVA.search(printed) or ("No such file" in error and "java" in error):
        return "Spark found no Java: install Java 17 or later, and set JAVA_HOME to its folder"
    if _OLD_JAVA.search(printed):
        return "the Java that Spark found is too old: install Java 17 or later, and set JAVA_HOME to its folder"
    cause = _CAUSE.search(printed)
    if cause is not None:
        return f"Spark did not start: {(cause['thrown'] or cause['error']).strip()}"
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    said = f"the last line of its output is {lines[-1]!r}" if lines else "it printed nothing"
    return f"Spark did not start, and {said}: {error.splitlines()[0] if error else 'no error'}"


def end_java(gateway: Any) -> None:
    """Ends the JVM behind a gateway that PySpark has launched; returns when the JVM has ended."""
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    with suppress(Exception):  # a JVM that has ended does not answer
        gateway.shutdown()
    if process is None:
        return
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    try:
        process.wait(_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
