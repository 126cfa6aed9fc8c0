"""`bucketline sql`: statements from arguments, files and the standard input; the shell."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from bucketline.streaming.cli.commands import program

MAKE = "CREATE TABLE t (a INT PRIMARY KEY NOT ENFORCED, b STRING) WITH ('bucket'='1'); INSERT INTO t VALUES (1, 'x;y')"
TABLES = ["database,table", "default,t"]


def sql(*arguments: str, stdin: str | None = None, code: int = 0) -> Result:
    found = CliRunner().invoke(program, ["sql", *arguments], input=stdin)
    assert found.exit_code == code, (found.output, found.stderr)
    return found


def test_files_come_first_then_texts_and_rows_are_printed_in_the_format(tmp_path: Path) -> None:
    script = tmp_path / "make.sql"
    script.write_text(f"-- a table\n{MAKE};\n")
    texts = ["-e", "SELECT * FROM t", "-e", "SELECT count(*) n FROM t; SHOW TABLES"]
    found = sql("--warehouse", str(tmp_path / "w"), "-f", str(script), *texts, "--format", "json")
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    rows = [{"a": 1, "b": "x;y"}, {"n": 1}, {"database": "default", "table": "t"}]
    assert lines == [{"result": "OK"}, {"snapshot_id": 1}, *rows]


def test_statements_come_from_the_standard_input_without_arguments(tmp_path: Path) -> None:
    found = sql("--warehouse", str(tmp_path), "--format", "csv", stdin=f"{MAKE}; SELECT a FROM t\n;")
    assert found.stdout.splitlines()[-2:] == ["a", "1"]


def test_the_first_statement_that_fails_ends_the_command(tmp_path: Path) -> None:
    failing = sql("--warehouse", str(tmp_path), "-e", f"{MAKE}; SELECT q FROM t; DROP TABLE t", code=3)
    assert "error [OPTION]: SQL: unknown column 'q'" in failing.stderr
    assert sql("--warehouse", str(tmp_path), "-e", "SHOW TABLES", "--format", "csv").stdout.splitlines() == TABLES
    unread = sql("--warehouse", str(tmp_path), "-e", "DROP TABLE t; SELEC 1", code=3)
    assert "'SELEC' is not supported; did you mean 'SELECT'?" in unread.stderr
    assert sql("--warehouse", str(tmp_path), "-e", "SHOW TABLES", "--format", "csv").stdout.splitlines() == TABLES
    assert "cannot be read" in sql("-f", str(tmp_path / "missing.sql"), code=3).stderr


def test_secrets_of_a_catalog_are_not_in_messages(tmp_path: Path) -> None:
    text = f"CREATE CATALOG c WITH ('warehouse'='{tmp_path}', 's3.secret-key'='hush-hush-42', 'x'='hush-hush-42')"
    assert "hush-hush-42" not in sql("-e", text, code=3).stderr


def test_the_shell_goes_on_after_errors_and_keeps_its_history_without_secrets(tmp_path: Path) -> None:
    typed = (
        f"{MAKE};\nSELECT a,\n b FROM t;\nSELECT q\nFROM t;\n"
        f"CREATE CATALOG c WITH ('warehouse'='{tmp_path}', 's3.secret-key'='hush-hush-42');\nquit\n"
    )
    leader, follower = pty.openpty()
    os.write(leader, typed.encode())
    found = subprocess.run(
        [sys.executable, "-m", "bucketline.streaming", "sql", "--warehouse", str(tmp_path / "w")],
        stdin=follower,
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "dumb"},
        timeout=60,
    )
    os.close(leader)
    os.close(follower)
    assert found.returncode == 0, found.stderr
    assert "1   x;y" in found.stdout and "unknown column 'q'" in found.stderr
    history = (tmp_path / "bucketline" / "sql-history").read_text()
    assert "SELECT a, b FROM t;" in history and "SELECT q FROM t;" in history and "hush" not in history
