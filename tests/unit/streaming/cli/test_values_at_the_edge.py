"""Files and arguments with numbers of thousands of digits, times of no year, and JSON without end: one line
of error from each command, and never a traceback."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import bucketline as bl
from bucketline.state.errors import UnsupportedTableError
from bucketline.streaming.cli.commands import program

DEEP = "[" * 100_000
DIGITS = "9" * 5000
FAR_TIMES = ("253402300800000", "-9223372036854775808", "9223372036854775807", "1e400", DIGITS, "9" * 19)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db" / "t"
    table = bl.create_table(str(path), "id BIGINT NOT NULL, v STRING", ["id"], options={"bucket": "1"})
    table.write(pa.table({"id": [1], "v": ["a"]}))
    table.create_tag("x")
    return path


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(program, arguments)


def _fails_in_one_line(found: Result) -> None:
    lines = found.stderr.splitlines()
    assert found.exit_code != 0 and lines[0].startswith("error [") and "INTERNAL" not in lines[0], found.stderr[:500]
    assert len(lines) == 1 or (len(lines) == 2 and lines[1].startswith("remedy: ")), found.stderr[:500]


def _sql(root: Path, text: str) -> Result:
    return _run("sql", "--warehouse", str(root.parent.parent), "-e", text)


@pytest.mark.parametrize("far", FAR_TIMES)
def test_a_time_of_no_year_in_a_metadata_file_is_named_where_it_is_shown(root: Path, far: str) -> None:
    for file, shown in (("schema/schema-0", "schemas"), ("snapshot/snapshot-1", "snapshots"), ("tag/tag-x", "tags")):
        path = root / file
        old = path.read_text()
        path.write_text(old.replace('"timeMillis": ', f'"timeMillis": {far}, "other": '))
        _fails_in_one_line(_sql(root, f"SELECT * FROM shop.t${shown}"))
        path.write_text(old)
        assert _sql(root, f"SELECT * FROM shop.t${shown}").exit_code == 0


@pytest.mark.parametrize("text", [DEEP, '{"a":' * 100_000, DIGITS])
def test_a_metadata_file_of_endless_json_is_a_damaged_file(root: Path, text: str) -> None:
    (root / "consumer").mkdir()
    (root / "consumer" / "consumer-c").write_text('{"nextSnapshot": 1}')
    commands: list[tuple[str, Callable[[], Result]]] = [
        ("schema/schema-0", lambda: _run("scan", str(root))),
        ("schema/schema-0", lambda: _sql(root, "SELECT * FROM shop.t$schemas")),
        ("snapshot/snapshot-1", lambda: _run("scan", str(root))),
        ("tag/tag-x", lambda: _sql(root, "SELECT * FROM shop.t$tags")),
        ("consumer/consumer-c", lambda: _sql(root, "SELECT * FROM shop.t$consumers")),
        ("consumer/consumer-c", lambda: _run("expire", str(root))),
    ]
    for file, command in commands:
        path = root / file
        old = path.read_text()
        path.write_text(text)
        found = command()
        _fails_in_one_line(found)
        assert "CORRUPT_FILE" in found.stderr and path.name in found.stderr
        path.write_text(old)


def _nested(levels: int, *, in_rows: bool) -> str:
    before = (
        '{"type": "ROW", "fields": [{"id": 9, "name": "a", "type": ' if in_rows else '{"type": "ARRAY", "element": '
    )
    return before * levels + '"INT"' + ("}]}" if in_rows else "}") * levels


@pytest.mark.parametrize("command", ["scan", "schema", "status", "compact", "expire", "orphans"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"type": "STRING"', f'"type": {_nested(64, in_rows=False)}'),
        ('"type": "STRING"', f'"type": {_nested(250, in_rows=True)}'),
        ('"type": "STRING"', f'"type": {_nested(500, in_rows=False)}'),
        ('"id": 1,', f'"id": {2**31},'),
        ('"id": 1,', f'"id": {2**63},'),
    ],
)
def test_a_schema_with_endless_types_or_ids_is_a_damaged_file(root: Path, command: str, old: str, new: str) -> None:
    path = root / "schema" / "schema-0"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    found = _run(command, str(root))
    _fails_in_one_line(found)
    assert "CORRUPT_FILE" in found.stderr and "schema-0" in found.stderr
    assert [p.name for p in (root / "snapshot").glob("snapshot-*")] == ["snapshot-1"]


def test_columns_that_no_schema_file_may_have_make_no_table(tmp_path: Path) -> None:
    kind: pa.DataType = pa.int32()
    for _ in range(63):
        kind = pa.list_(kind)
    made = bl.create_table(str(tmp_path / "d.db" / "a"), pa.schema([("c", kind)]))
    with pytest.raises(UnsupportedTableError, match="column d: more than 64 types are nested in each other"):
        made.add_column("d", pa.list_(kind))
    with pytest.raises(UnsupportedTableError, match="column c: more than 64 types are nested in each other"):
        bl.create_table(str(tmp_path / "d.db" / "b"), pa.schema([("c", pa.list_(kind))]))
    assert not (tmp_path / "d.db" / "b").exists()


def test_doctor_names_metadata_files_of_endless_json(root: Path) -> None:
    (root / "consumer").mkdir()
    (root / "consumer" / "consumer-c").write_text(DEEP)
    (root / "tag" / "tag-y").write_text(DEEP)
    found = _run("doctor", str(root))
    assert found.exit_code == 1 and "consumer-c" in found.stdout and "tag-y" in found.stdout, found.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("scan", "T", "--snapshot", DIGITS),
        ("scan", "T", "--changes-since", DIGITS),
        ("scan", "T", "--limit", DIGITS),
        ("scan", "T", "--where", f"id = {'(' * 3000}1{')' * 3000}"),
        ("scan", "T", "--where", f"id > 1e{DIGITS}"),
        ("scan", "T", "-o", f"scan.timestamp-millis={DIGITS}"),
        ("scan", "T", "-o", f"scan.snapshot-id={DIGITS}"),
        ("scan", "T", "-o", f"scan.version={DIGITS}"),
        ("scan", "T", "-o", f"incremental-between={DIGITS},2"),
        ("scan", "T", "-o", f"incremental-between-timestamp={DIGITS},2"),
        ("tag", "create", "T", "y", "--retained", f"{DIGITS} d"),
        ("tag", "create", "T", "y", "--retained", "999999999999 d"),
        ("rollback", "T", DIGITS),
        ("rescale", "T", DIGITS),
        ("expire", "T", "--retain-max", DIGITS),
        ("expire", "T", "--older-than", f"{DIGITS} d"),
        ("orphans", "T", "--older-than", f"{DIGITS} d"),
        ("orphans", "T", "--older-than", "999999999999 d"),
        ("compactor", "T", "--once", "--set", f"lease={DIGITS}"),
    ],
)
def test_an_argument_of_thousands_of_digits_is_refused_in_one_line(root: Path, arguments: tuple[str, ...]) -> None:
    _fails_in_one_line(_run(*(str(root) if a == "T" else a for a in arguments)))


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT * FROM shop.t VERSION AS OF {DIGITS}",
        f"SELECT * FROM shop.t TIMESTAMP AS OF {DIGITS}",
        f"SELECT * FROM shop.t TIMESTAMP AS OF '2026-01-01' - INTERVAL {DIGITS} DAYS",
        f"SELECT * FROM shop.t TIMESTAMP AS OF '2026-01-01' - INTERVAL {'9' * 12} DAYS",
        f"SELECT * FROM shop.t ORDER BY {DIGITS}",
        f"SELECT id + {DIGITS} FROM shop.t",
        f"SELECT substring(v, {DIGITS}) FROM shop.t",
        f"SELECT * FROM shop.t /*+ OPTIONS('scan.snapshot-id'='{DIGITS}') */",
        f"CALL sys.rollback(table => 'shop.t', version => '{DIGITS}')",
        f"CALL sys.expire_snapshots(table => 'shop.t', retain_max => {DIGITS})",
        f"CALL sys.create_tag(table => 'shop.t', tag => 'q', time_retained => '{DIGITS} d')",
        "CALL sys.create_tag(table => 'shop.t', tag => 'q', time_retained => '999999999999 d')",
        f"CALL sys.rescale(table => 'shop.t', bucket_num => {DIGITS})",
        f"ALTER TABLE shop.t CREATE TAG a RETAIN {DIGITS} DAYS",
        "ALTER TABLE shop.t CREATE TAG a RETAIN 999999999999 DAYS",
        f"ALTER TABLE shop.t ADD COLUMN z {'ARRAY<' * 2000}INT{'>' * 2000}",
        f"ALTER TABLE shop.t ADD COLUMN z DECIMAL({DIGITS}, 1)",
        f"CREATE TABLE shop.q (a {'ROW<a ' * 500}INT{'>' * 500})",
        f"INSERT INTO shop.t VALUES ({DIGITS}, 'x')",
        f"DELETE FROM shop.t WHERE id = {'(' * 3000}1{')' * 3000}",
        f"SELECT {'1+' * 3000}1",
        "SELECT " + "[" * 3000,
    ],
)
def test_a_statement_with_thousands_of_digits_or_brackets_is_refused_in_one_line(root: Path, text: str) -> None:
    _fails_in_one_line(_sql(root, text))


def test_a_limit_of_any_length_is_a_limit(root: Path) -> None:
    for limit, rows in ((DIGITS, 1), ("0" * 50 + "1", 1), ("0" * 50, 0)):
        found = _sql(root, f"SELECT id FROM shop.t LIMIT {limit}")
        shown = [line.strip() for line in found.stdout.splitlines()]
        assert (found.exit_code, shown.count("1")) == (0, rows), found.stderr
