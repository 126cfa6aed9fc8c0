"""`create`, `scan`, `snapshots`, `files`, `schema` from the shell's side: what is printed, and how it ends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from bucketline.state.store.catalog.tags import tag_snapshot
from bucketline.state.store.storage.local_io import LocalIO
from bucketline.state.store.table.table import create_table
from bucketline.streaming.cli.commands import program

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("raw", pa.binary()),
        ("dt", pa.string()),
    ]
)


def bucketline(*arguments: str, code: int = 0) -> Result:
    found = CliRunner().invoke(program, arguments)
    assert found.exit_code == code, (found.output, found.stderr)
    assert "Traceback" not in found.output
    return found


def printed_rows(*arguments: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in bucketline(*arguments, "--format", "json").stdout.splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table of two snapshots: 1, 2 and 3, then 2 again."""
    table = create_table(str(tmp_path / "w.db" / "t"), SCHEMA, primary_key=["id"], options={"bucket": "2"})
    rows = [
        {"id": 1, "name": 'a "quoted", one', "price": 1, "raw": b"\x00\xff", "dt": "d1"},
        {"id": 2, "name": None, "price": None, "raw": None, "dt": "d1"},
        {"id": 3, "name": "\x1b[2Jc", "price": 3, "raw": b"", "dt": "d2"},
    ]
    table.write(pa.Table.from_pylist(rows, schema=SCHEMA))
    table.write(pa.Table.from_pylist([{"id": 2, "name": "b", "dt": "d2"}], schema=SCHEMA))
    return table.path


def test_scan_prints_the_newest_rows(path: str) -> None:
    found = printed_rows("scan", path, "--columns", "id, name")
    assert sorted(found, key=lambda r: str(r["id"])) == [
        {"id": 1, "name": 'a "quoted", one'},
        {"id": 2, "name": "b"},
        {"id": 3, "name": "\x1b[2Jc"},
    ]


def test_scan_filters_limits_and_travels_in_time(path: str) -> None:
    assert printed_rows("scan", path, "--where", "id = 2", "--columns", "name,price") == [{"name": "b", "price": None}]
    assert printed_rows("scan", path, "--where", "id = 2", "--columns", "name", "--snapshot", "1") == [{"name": None}]
    tag_snapshot(LocalIO(), path, "before", 1)
    assert printed_rows("scan", path, "--where", "id = 2", "--columns", "dt", "--snapshot", "before") == [{"dt": "d1"}]
    changes = printed_rows("scan", path, "--columns", "id", "--changes-since", "before")
    assert changes == [{"id": 2, "_row_kind": 0}]
    assert len(printed_rows("scan", path, "--limit", "2")) == 2
    placed = printed_rows(
        "scan", path, "--where", "id = 2 AND __paimon_bucket >= 0", "--columns", "name,__paimon_bucket"
    )
    assert [row["name"] for row in placed] == ["b"] and list(placed[0]) == ["name", "__paimon_bucket"]
    assert printed_rows("scan", path, "--limit", "0") == []
    assert printed_rows("scan", path, "--read-optimized") == []


def test_scan_as_csv_and_table(path: str) -> None:
    where = ("--where", "id IN (1, 3)", "--columns", "id,name,raw")
    lines = bucketline("scan", path, *where, "--format", "csv").stdout.splitlines()
    assert lines[0] == "id,name,raw"
    assert sorted(lines[1:]) == ['1,"a ""quoted"", one",00ff', '3,\x1b[2Jc,""']
    shown = bucketline("scan", path, *where).stdout
    assert "\x1b" not in shown and "\\u001b[2Jc" in shown


def test_scan_writes_a_new_parquet_file_whole(path: str, tmp_path: Path) -> None:
    target = tmp_path / "rows.parquet"
    bucketline("scan", path, "--where", "id < 3", "--output", str(target))
    assert sorted(pq.read_table(target)["id"].to_pylist()) == [1, 2]
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["rows.parquet"]
    for output in (str(target), "x.csv", str(tmp_path / "no" / "x.parquet")):
        assert "--output" in bucketline("scan", path, "--output", output, code=2).stderr


def test_snapshots_and_files_print_all_columns_for_programs(path: str) -> None:
    snapshots = printed_rows("snapshots", path)
    assert [s["snapshot_id"] for s in snapshots] == [1, 2]
    assert "base_manifest_list" in snapshots[0]
    assert "base_manifest_list" not in bucketline("snapshots", path).stdout
    files = printed_rows("files", path)
    assert {str(f["file_format"]) for f in files} == {"parquet"} and all(f["level"] == 0 for f in files)
    assert "min_key" in bucketline("files", path).stdout


def test_schema_shows_columns_and_options(path: str) -> None:
    columns = printed_rows("schema", path)
    assert columns[0] == {
        "id": 0,
        "column": "id",
        "type": "BIGINT",
        "nullable": False,
        "key": "primary",
        "comment": None,
    }
    assert {"option": "bucket", "value": "2"} in printed_rows("schema", path, "--options")


def test_secrets_among_options_are_masked(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table = create_table(path, "id INT")
    schema = Path(path, "schema", "schema-0")
    stored = json.loads(schema.read_text())
    stored["options"] = {"s3.secret-key": "hush"}  # as a table of Paimon may hold it
    schema.write_text(json.dumps(stored))
    assert "***" in bucketline("schema", path, "--options").stdout
    assert "hush" not in bucketline("schema", path, "--options").stdout + repr(table.refreshed())


def test_create_makes_what_it_is_told(tmp_path: Path) -> None:
    path = str(tmp_path / "w.db" / "t")
    text = "id BIGINT, name VARCHAR(20) COMMENT 'x', dt DATE, place ROW<lat DOUBLE>"
    made = bucketline(
        "create", "--table", path, "--schema", text, "--primary-key", "dt, id", "--partition-by", "dt", "-o", "bucket=4"
    )
    assert made.stdout.strip() == path
    assert [(c["column"], c["type"], c["key"]) for c in printed_rows("schema", path)] == [
        ("id", "BIGINT", "primary"),
        ("name", "VARCHAR(20)", None),
        ("dt", "DATE", "primary, partition"),
        ("place", "ROW<lat DOUBLE>", None),
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["create", "--table", "T", "--schema", "id BIGNIT"], 3, "error [OPTION]: schema text: column 'id'"),
        (["create", "--table", "T", "--schema", "id INT", "--primary-key", "x"], 3, "error [OPTION]"),
        (["create", "--table", "T", "--schema", "id INT", "-o", "bucket"], 2, "error [USAGE]"),
        (["create", "--table", "T"], 2, "error [USAGE]: Missing option '--schema'"),
        (["create", "--table", "nope://h/T", "--schema", "id INT"], 3, "error [OPTION]"),
        (["scan", "nowhere"], 3, "error [TABLE_NOT_FOUND]"),
        (["scan"], 2, "error [USAGE]: Missing argument 'PATH'"),
        (["scan", "PATH", "--snapshot", "99"], 3, "has no snapshot 99; it has snapshots 1 to 2"),
        (["scan", "PATH", "--snapshot", "x"], 3, "has no tag 'x'"),
        (["scan", "PATH", "--limit", "-1"], 2, "error [USAGE]"),
        (["scan", "PATH", "--columns", "nmae"], 2, "did you mean 'name'"),
        (["scan", "PATH", "--columns", "id,id"], 2, "asked for twice"),
        (["scan", "PATH", "--where", "nmae = 'x'"], 2, "did you mean 'name'"),
        (["scan", "PATH", "--where", "1; DROP TABLE x"], 2, "--where"),
        (["scan", "PATH", "--format", "xml"], 2, "error [USAGE]"),
        (["scna", "PATH"], 2, "error [USAGE]: No such command 'scna'"),
        (["scan", "PATH", "--\x1b[2J"], 2, "[2J"),
        ([], 2, ""),
    ],
)
def test_an_error_is_one_line_and_a_remedy_with_its_exit_code(
    arguments: list[str], code: int, says: str, path: str
) -> None:
    found = bucketline(*(path if a == "PATH" else a for a in arguments), code=code)
    lines = found.stderr.splitlines()
    assert says in found.stderr and "\x1b" not in found.stderr
    assert not lines or (lines[0].startswith("error [") and all(line.startswith("remedy: ") for line in lines[1:]))


def test_a_damaged_table_is_an_error_that_says_what_to_keep(path: str) -> None:
    (Path(path) / "snapshot" / "snapshot-2").write_text("{")
    found = bucketline("snapshots", path, code=1)
    assert found.stderr.startswith("error [CORRUPT_FILE]: ") and "remedy: keep all files" in found.stderr


def test_a_traceback_is_shown_when_asked_for(path: str) -> None:
    for arguments, environment in (["--debug"], {}), ([], {"BUCKETLINE_DEBUG": "1"}):
        found = CliRunner(env=environment).invoke(program, [*arguments, "scan", "nowhere"])
        assert found.exit_code == 3 and "Traceback" in found.stderr
        assert found.stderr.splitlines()[-2].startswith("error [TABLE_NOT_FOUND]")
    assert "Traceback" not in CliRunner().invoke(program, ["scan", "nowhere"]).stderr


def test_the_module_says_what_the_script_says() -> None:
    texts = [
        subprocess.run([*command, "--help"], capture_output=True, text=True, check=True, env=_environment()).stdout
        for command in (
            [sys.executable, "-m", "bucketline.streaming"],
            [sys.executable, "-c", "from bucketline.streaming.cli import main; main()"],
        )
    ]
    assert texts[0] == texts[1] and texts[0].startswith("Usage: bucketline ")
    script = Path(sys.executable).with_name("bucketline")
    assert script.exists(), "the package is installed with its script"
    assert subprocess.run([script, "--help"], capture_output=True, text=True, check=True).stdout == texts[0]


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k != "BUCKETLINE_DEBUG"}


def test_help_needs_no_spark() -> None:
    code = "import sys, bucketline.streaming.cli; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
