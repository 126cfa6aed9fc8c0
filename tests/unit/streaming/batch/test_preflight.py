"""Checks before the first task: columns by name, and which Python the workers start."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.types.columns_text import parse_columns
from bucketline.streaming.batch.preflight import check_columns, check_session, worker_python_advice

SCHEMA = TableSchema(
    id=0,
    fields=parse_columns("id BIGINT NOT NULL, v STRING"),
    highest_field_id=1,
    partition_keys=(),
    primary_keys=("id",),
    options={"bucket": "1"},
    comment=None,
    time_ms=0,
)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["id", "v", "id"], "column 'id' twice"),
        (["id", "v", "w"], "column 'w' of the input is not in the table"),
        (["id"], "column 'v' of the table is not in the input"),
    ],
)
def test_columns_are_held_against_the_table_by_name(names: list[str], told: str) -> None:
    with pytest.raises(SchemaMismatchError, match=told):
        check_columns(names, SCHEMA)


def test_any_order_and_a_row_kind_are_fine() -> None:
    check_columns(["v", "_row_kind", "id"], SCHEMA)


def test_another_python_for_workers_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert worker_python_advice({}) is None
    advice = worker_python_advice({"spark.pyspark.python": "/opt/other/python"})
    assert advice is not None and "/opt/other/python" in advice and "PYSPARK_PYTHON" in advice
    monkeypatch.delenv("PYSPARK_PYTHON")
    (tmp_path / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    advice = worker_python_advice({})
    assert advice is not None and "first on PATH" in advice


def test_the_same_python_under_its_other_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert worker_python_advice({}) is None


@dataclass
class Application:
    """A Spark session whose settings are read; `reads` counts how often."""

    applicationId: str
    settings: dict[str, str] = field(default_factory=dict)
    reads: int = 0

    @property
    def sparkContext(self) -> "Application":
        return self

    def getConf(self) -> "Application":
        self.reads += 1
        return self

    def getAll(self) -> list[tuple[str, str]]:
        return list(self.settings.items())


def test_settings_are_read_once_an_application_and_not_with_each_batch() -> None:
    one, other = Application("preflight-1"), Application("preflight-2")
    for session in (one, one, one, other):
        check_session(session)
    assert (one.reads, other.reads) == (1, 1)


def test_settings_that_are_refused_are_refused_with_each_batch() -> None:
    session = Application("preflight-3", {"spark.api.mode": "connect"})
    for _ in range(2):
        with pytest.raises(OptionError, match=r"spark\.api\.mode"):
            check_session(session)
