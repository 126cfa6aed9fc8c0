"""Why Spark's JVM did not start, told from what it printed; and that none is left."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from bucketline.conf.errors import OptionError
from bucketline.streaming.job import session
from bucketline.streaming.job.start.java_process import Printed, end_java, why_not_started

EXITED = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
IVY = """\
:: problems summary ::
:::: WARNINGS
  module not found: org.apache.spark#spark-sql-kafka-0-10_2.13;9.9.9
  ::          UNRESOLVED DEPENDENCIES         ::
  :: org.apache.spark#spark-sql-kafka-0-10_2.13;9.9.9: not found
Exception in thread "main" java.lang.RuntimeException: \
[unresolved dependency: org.apache.spark#spark-sql-kafka-0-10_2.13;9.9.9: not found]
  at org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:540)
"""
DOWNLOAD = (
    'Exception in thread "main" java.lang.RuntimeException: [download failed: '
    "org.lz4#lz4-java;1.8.0!lz4-java.jar, download failed: org.a#b;1!b.jar]\n"
)
OLD = (
    "Error: A JNI error has occurred, please check your installation and try again\n"
    'Exception in thread "main" java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main has been '
    "compiled by a more recent version of the Java Runtime (class file version 61.0)\n"
)


@pytest.mark.parametrize(
    ("printed", "says"),
    [
        (IVY, r"could not fetch org\.apache\.spark#spark-sql-kafka-0-10_2\.13;9\.9\.9: not found, which --packages"),
        (DOWNLOAD, r"could not fetch org\.lz4#lz4-java;1\.8\.0!lz4-java\.jar, org\.a#b;1!b\.jar, which --packages"),
        (OLD, r"is too old: install Java 17 or later"),
        ("JAVA_HOME is not set\n", "found no Java: install Java 17 or later"),
        ("spark-class: line 71: /opt/jdk/bin/java: No such file or directory\n", "found no Java"),
        (
            "Unrecognized VM option 'UseMagic'\nError: Could not create the Java Virtual Machine.\n",
            "did not start: Unrecognized VM option 'UseMagic'",
        ),
        (
            'WARNING: x\nException in thread "main" java.lang.IllegalArgumentException: Invalid spark.driver.memory\n',
            "did not start: IllegalArgumentException: Invalid spark.driver.memory",
        ),
        ("out of luck\n", "the last line of its output is 'out of luck'"),
        ("", "it printed nothing"),
    ],
)
def test_the_cause_is_named_and_java_17_only_where_java_is_the_cause(printed: str, says: str) -> None:
    found = why_not_started(printed, EXITED, "a:b:1")
    assert re.search(says, found), found
    assert ("Java 17" in found) == (printed == OLD or "JAVA_HOME" in printed or "No such file" in printed)


def _java(folder: Path, script: str) -> None:
    """A Java that is a script."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / "java").chmod(0o755)


def test_a_start_that_fails_tells_the_reason_that_java_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """`launch_gateway` of PySpark runs a script in place of Java."""
    (tmp_path / "ivy.txt").write_text(IVY)
    _java(tmp_path / "jdk", f"cat {tmp_path}/ivy.txt >&2; exit 1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages org.apache.spark:x:9.9.9 pyspark-shell")
    with pytest.raises(OptionError, match=r"could not fetch .*9\.9\.9.*\(org\.apache\.spark:x:9\.9\.9\)") as e:
        session._start_jvm("test", {})
    assert "Java 17" not in e.value.message
    assert "UNRESOLVED DEPENDENCIES" in capfd.readouterr().err, "what Java prints is shown as it comes"


def test_what_a_process_prints_is_passed_on_and_kept_until_it_is_forgotten(capfd: pytest.CaptureFixture[str]) -> None:
    printed = Printed()
    process = subprocess.Popen([sys.executable, "-c", "import os; os.write(2, b'x' * 100_000)"], stderr=printed.pipe)
    printed.started()
    assert process.wait() == 0 and printed.text() == "x" * (1 << 16)
    assert capfd.readouterr().err == "x" * 100_000
    forgotten = Printed()
    process = subprocess.Popen([sys.executable, "-c", "import os; os.write(2, b'late')"], stderr=forgotten.pipe)
    forgotten.forget()
    forgotten.started()
    assert process.wait() == 0 and forgotten.text() == "" and capfd.readouterr().err == "late"


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_jvm_that_is_ended_is_gone_when_the_call_returns(stubborn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that reads its standard input ends with it; one that does not is killed with its group."""
    monkeypatch.setattr("bucketline.streaming.job.start.java_process._PATIENCE_SECONDS", 0.5 if stubborn else 60.0)
    wait = (
        "import time; print(flush=True); time.sleep(600)"
        if stubborn
        else "import sys; print(flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", wait], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    )
    assert process.stdout is not None and process.stdout.read(1) == b"\n"
    end_java(SimpleNamespace(proc=process, shutdown=lambda: None))
    process.stdout.close()
    assert process.poll() is not None and not psutil.pid_exists(process.pid)


KILLED = """
import subprocess, sys, time
from bucketline.streaming.job.ending import process_ending
import signal

child = subprocess.Popen(
    ["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, stdin=subprocess.PIPE, process_group=0
)
print(child.stdout.readline().decode().strip(), flush=True)
ending = process_ending()
SESSION
ending.ask(signal.SIGTERM)
ending._asked_at -= 10
ending.ask(signal.SIGTERM)
"""


@pytest.mark.parametrize("is_up", [False, True], ids=["before Spark is up", "at a second signal"])
def test_no_process_that_the_start_script_has_started_is_left_after_term(is_up: bool) -> None:
    """The script that starts Spark runs a JVM of its own first, which is no child of ours."""
    code = KILLED.replace("SESSION", "ending.session_is_up()" if is_up else "")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 143, done.stderr
    grandchild = int(done.stdout)
    alive = psutil.pid_exists(grandchild) and psutil.Process(grandchild).status() != psutil.STATUS_ZOMBIE
    assert not alive, "it has ended when the command returns"
