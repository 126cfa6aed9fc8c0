"""How the program ends: exit codes and one line for every kind of error."""

import subprocess
import sys
from pathlib import Path

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.state.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    IndexStateError,
    SchemaMismatchError,
    StorageError,
)
from bucketline.state.store.table.table import create_table
from bucketline.streaming.batch.failure import SparkFailedError, error_within
from bucketline.streaming.batch.recover import CheckpointMismatchError
from bucketline.streaming.cli.modules import MODULE_OF_COMMAND
from bucketline.streaming.cli.program import Program, program

_SPARK_TEXT = """[STREAM_FAILED] Query [id = 1] terminated with exception: An exception was raised by the Python Proxy.
Traceback (most recent call last):
  File "/x/bucketline/state/store/read.py", line 3, in f
bucketline.state.errors.CorruptFileError: a cause

The above exception was the direct cause of the following exception:

bucketline.state.errors.CommitConflictError: somebody was faster
\tat org.apache.spark.api.python.BasePythonRunner (PythonRunner.scala:572)
"""


def _ended_by(error: BaseException) -> Result:
    group = Program("bucketline")

    @group.command()
    def fail() -> None:
        raise error

    return CliRunner().invoke(group, ["fail"])


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (OptionError("no such key"), 3, "error [OPTION]: no such key"),
        (CommitConflictError("x"), 4, "error [COMMIT_CONFLICT]: x"),
        (CommitOutcomeUnknownError("x"), 4, "error [COMMIT_OUTCOME_UNKNOWN]: x"),
        (CheckpointMismatchError("x"), 4, "error [CHECKPOINT_MISMATCH]: x"),
        (SchemaMismatchError("two\nlines"), 1, "error [SCHEMA_MISMATCH]: two lines"),
        (IndexStateError("x"), 1, "error [INDEX_STATE]: x"),
        (StorageError("s3://user:pass@host/x is gone"), 1, "error [STORAGE]: s3://***@host/x is gone"),
        (OSError(28, "No space left on device"), 1, "error [STORAGE]: [Errno 28] No space left on device"),
        (click.UsageError("what?"), 2, "error [USAGE]: what?"),
        (KeyboardInterrupt(), 1, "error [STOPPED]: the command was interrupted"),
        (ZeroDivisionError("by zero"), 1, "error [INTERNAL]: ZeroDivisionError: by zero"),
        (RuntimeError(_SPARK_TEXT), 4, "error [COMMIT_CONFLICT]: somebody was faster"),
        (RuntimeError("x" * 5000), 1, "error [INTERNAL]: RuntimeError: xxx"),
    ],
)
def test_each_kind_of_error_has_its_exit_code_and_its_line(error: BaseException, code: int, line: str) -> None:
    found = _ended_by(error)
    assert found.exit_code == code
    assert next(filter(None, found.stderr.splitlines())).startswith(line)
    assert len(found.stderr) < 2500 and "Traceback" not in found.stderr


def test_a_storage_error_that_may_pass_says_so() -> None:
    assert "run the command again" in _ended_by(StorageError("x", retryable=True)).stderr
    assert "permissions" in _ended_by(StorageError("x", retryable=False)).stderr


def test_a_scan_of_a_missing_data_file_leads_to_doctor(tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "id BIGINT NOT NULL", primary_key=["id"], options={"bucket": "1"})
    table.write(pa.table({"id": [1]}))
    next((tmp_path / "t").rglob("data-*")).unlink()
    found = CliRunner().invoke(program, ["scan", table.path])
    assert found.exit_code == 1 and "bucketline doctor PATH" in found.stderr, found.stderr


def test_the_remedy_for_a_malformed_file_is_not_to_start_again_as_it_is() -> None:
    broken = _ended_by(SparkFailedError("bad", file="a.json", malformed=True)).stderr
    unread = _ended_by(SparkFailedError("bad", file="a.json", malformed=False)).stderr
    assert "remedy: correct the file or move it away" in broken
    assert "remedy: start the job again" in unread


def test_the_list_of_commands_cuts_no_sentence() -> None:
    for group, command in (((), "quickstart"), (("branch",), "fast-forward"), (("tag",), "delete")):
        listed = CliRunner().invoke(program, [*group, "--help"], terminal_width=80).stdout.partition("Commands:")[2]
        assert command in listed and "..." not in listed


def test_a_command_is_found_in_the_module_that_is_named_for_it() -> None:
    found = {name: command.callback.__module__ for name, command in program.all_commands().items() if command.callback}
    assert found == MODULE_OF_COMMAND


def test_a_command_loads_no_module_of_another_one() -> None:
    code = (
        "import sys; from bucketline.streaming.cli.program import program\n"
        "try: program.main(['py-files', '--help'])\n"
        "except SystemExit: print([m for m in sys.modules if m in ('bucketline.state.store.table.table', 'sqlglot')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: bucketline py-files") and done.stdout.endswith("[]\n")


def test_a_mistyped_command_is_told_the_one_that_is_meant() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bucketline.streaming", "comapct", "x"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "'comapct'" in done.stderr and "'compact'" in done.stderr


def test_an_error_within_a_text_of_spark_is_found_by_its_class() -> None:
    found = error_within(_SPARK_TEXT)
    assert isinstance(found, CommitConflictError) and found.message == "somebody was faster"
    for text in ("", "bucketline.state.errors.NoSuchError: x", "ValueError: x", "bucketline.state.errors.CorruptError"):
        assert error_within(text) is None
    assert isinstance(error_within("bucketline.conf.errors.BucketlineError: x"), BucketlineError)


def test_what_needs_spark_says_so_where_there_is_none() -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; from bucketline.streaming.cli import main;"
        "sys.argv = ['bucketline', 'quickstart']; main()"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 3 and "pip install pyspark pandas (the extra 'spark')" in found.stderr


def test_ingest_and_quickstart_find_what_they_run(tmp_path: Path) -> None:
    """Both end before Spark starts: there is no table, and the folder is not empty."""
    (tmp_path / "job.properties").write_text(f"table={tmp_path}/t\nsource.format=rate\ncheckpoint={tmp_path}/c\n")
    ways = (["ingest", "--conf-file", str(tmp_path / "job.properties")], ["quickstart", "--directory", str(tmp_path)])
    found = [CliRunner().invoke(program, way) for way in ways]
    assert [f.exit_code for f in found] == [3, 3]
    assert "error [TABLE_NOT_FOUND]: " in found[0].stderr and "is not empty" in found[1].stderr
