"""Metrics where the options name them: Prometheus' port and text file, JSON lines; and what cannot be opened."""

import json
import random
import shutil
import socket
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bucketline.conf.errors import OptionError
from bucketline.conf.metrics_options import MetricsOptions, metrics_options
from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.batch.batch_metrics import measure_tables
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.progress import BatchReport
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.metrics.outlets import close_ports, exposition, open_outlets, write_outlets
from bucketline.streaming.metrics.registry import Metric, MetricKind, Registry
from tests.support.servers.s3_server import free_port
from tests.support.spark.tasks import Cluster

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def ports() -> Iterator[None]:
    """Ports that are closed in the end."""
    yield
    close_ports()


def as_is(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


def samples(text: str, table: str) -> Samples:
    """What is shown of a table, without its labels `table` and `writer`."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for s in family.samples:
            if s.labels.get("table") == table:
                rest = tuple(sorted((k, v) for k, v in s.labels.items() if k not in ("table", "writer")))
                found[s.name, rest] = s.value
    return found


def test_a_stream_shows_its_batches_at_a_port_in_a_file_and_as_lines(tmp_path: Path, ports: None) -> None:
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "2"})
    port, prom, lines = free_port(), tmp_path / "batches.prom", tmp_path / "batches.jsonl"
    sink = TableSink(
        table.path,
        {
            "compaction": "none",
            "metrics.prometheus.port": str(port),
            "metrics.prometheus.file": str(prom),
            "metrics.json.file": str(lines),
        },
        decode=as_is,
    )
    for number in range(3):
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
        rows = pa.table({"id": range(20), "v": [number] * 20}, schema=COLUMNS)
        sink.write(Cluster(random.Random(number), 2).frame(rows, 2), identity)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        asked = samples(answer.read().decode(), table.path)
    assert asked == samples(prom.read_text(), table.path)
    assert asked["bucketline_batches_total", ()] == 3 and asked["bucketline_input_rows_total", ()] == 60
    assert asked["bucketline_batch_id", ()] == 2 and asked["bucketline_most_runs", ()] == 2
    # Each bucket had two runs as the last batch began; none has one any more.
    assert asked["bucketline_buckets", (("runs", "2"),)] == 2
    assert ("bucketline_buckets", (("runs", "1"),)) not in asked
    assert asked["bucketline_level0_bytes", ()] > 0 and asked["bucketline_open_items", ()] == 0
    shown = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(t["batch_id"], t["writer"], t["most_runs"]) for t in shown] == [
        (0, "query", 0),
        (1, "query", 1),
        (2, "query", 2),
    ]
    assert open_table(table.path).to_arrow().num_rows == 20


def test_a_stream_shows_what_of_its_rows_waits_in_the_postpone_bucket(tmp_path: Path) -> None:
    """Its files and their bytes are counted until the rows are moved."""
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "-2"})
    prom, lines = tmp_path / "batches.prom", tmp_path / "batches.jsonl"
    options = {"metrics.prometheus.file": str(prom), "metrics.json.file": str(lines)}
    sink = TableSink(table.path, {**options, "postpone-compaction.batches": "3"}, decode=as_is)
    waited = []
    for number in range(3):
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
        rows = pa.table({"id": range(20), "v": [number] * 20}, schema=COLUMNS)
        sink.write(Cluster(random.Random(number), 2).frame(rows, 2), identity)
        shown = samples(prom.read_text(), table.path)
        waited.append((shown["bucketline_postponed_rows", ()], shown["bucketline_postponed_bytes", ()]))
    size = sum(p.stat().st_size for p in Path(table.path).glob("bucket-postpone/data-*"))
    assert [rows for rows, _ in waited] == [20, 40, 0]
    # The files of the third batch are still there, for snapshots that have not expired.
    assert 0 < waited[0][1] < waited[1][1] < size and waited[2][1] == 0
    told = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(t["postponed_rows"], t["postponed_bytes"]) for t in told] == waited


def test_other_features_extend_the_registry_and_gauges_forget_what_is_gone() -> None:
    registry = Registry()
    files, kinds = Metric("files", MetricKind.COUNTER, "files"), Metric("kinds", MetricKind.GAUGE, "kinds")
    registry.add(files, 2, {"table": "a"})
    registry.add(files, 3, {"table": "a"})
    registry.replace(kinds, {(("kind", "x"),): 1}, {"table": "a"})
    registry.replace(kinds, {(("kind", "x"),): 1}, {"table": "b"})
    registry.replace(kinds, {(("kind", "y"),): 2}, {"table": "a"})
    text = exposition(registry).decode()
    assert samples(text, "a") == {("bucketline_files_total", ()): 5, ("bucketline_kinds", (("kind", "y"),)): 2}
    assert samples(text, "b") == {("bucketline_kinds", (("kind", "x"),)): 1}


def test_what_cannot_be_opened_is_an_error_before_the_first_batch(tmp_path: Path, ports: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OptionError, match=f"127.0.0.1:{port} cannot be opened"):
            open_outlets(MetricsOptions(prometheus_port=port, prometheus_address="127.0.0.1"))
    for option in ("prometheus_file", "json_file"):
        with pytest.raises(OptionError, match="cannot be written"):
            open_outlets(MetricsOptions(**{option: str(tmp_path / "no" / "folder")}))  # type: ignore[arg-type]
    for options, why in (
        ({"metrics.prometheus.port": "70000"}, "is no valid port"),
        ({"metrics.prometheus.address": "127.0.0.1"}, "needs 'metrics.prometheus.port'"),
        ({"metrics.prometheus.prt": "1"}, "did you mean 'metrics.prometheus.port'"),
    ):
        with pytest.raises(OptionError, match=why):
            metrics_options(options)


def test_the_port_is_opened_for_this_machine_alone_unless_an_address_is_named(ports: None) -> None:
    port = free_port()
    open_outlets(metrics_options({"metrics.prometheus.port": str(port)}))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.status == 200
    # An address of this machine that is not the one where it listens: a port of all addresses would answer.
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", port), timeout=10):
        pass
    everywhere = free_port()
    open_outlets(metrics_options({"metrics.prometheus.port": str(everywhere), "metrics.prometheus.address": "0.0.0.0"}))
    with socket.create_connection(("127.0.0.2", everywhere), timeout=10):
        pass


def test_metrics_that_cannot_be_written_later_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = MetricsOptions(json_file=str(tmp_path / "gone" / "lines"))
    write_outlets(settings, ["{}"], Registry())
    assert "metrics could not be written" in caplog.text


def test_a_file_that_goes_away_between_two_batches_fails_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = create_table(str(tmp_path / "shop.db" / "t"), COLUMNS, ("id",), options={"bucket": "1"})
    folder = tmp_path / "shown"
    folder.mkdir()
    options = {"metrics.json.file": str(folder / "lines"), "metrics.prometheus.file": str(folder / "prom")}
    sink = TableSink(table.path, options, decode=as_is)
    for number in range(2):
        identity = BatchIdentity("query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}")
        rows = pa.table({"id": range(20), "v": [number] * 20}, schema=COLUMNS)
        sink.write(Cluster(random.Random(number), 2).frame(rows, 2), identity)
        assert ("metrics could not be written" in caplog.text) == (number == 1)
        shutil.rmtree(folder, ignore_errors=True)
    assert open_table(table.path).to_arrow()["v"].to_pylist() == [1] * 20


class _Counted(Registry):
    """A registry that counts how often an outlet has asked for its values."""

    asked = 0

    def samples(self) -> Any:
        self.asked += 1
        return super().samples()


def test_a_batch_of_several_tables_is_shown_once_with_all_of_them(tmp_path: Path) -> None:
    prom, lines, registry = tmp_path / "batches.prom", tmp_path / "batches.jsonl", _Counted()
    settings = MetricsOptions(prometheus_file=str(prom), json_file=str(lines))
    seconds = {"plan_seconds": 0.1, "task_seconds": 0.1, "commit_seconds": 0.1, "total_seconds": 0.3}
    none = dict.fromkeys(
        ("stored_rows", "stored_bytes", "compacted_files", "rejected_rows", "expired_snapshots", "spilled_bytes"), 0
    )
    reports = [
        BatchReport(
            f"t{n}", 7, False, (1,), n, level_files=(), compaction_dropped=False, behind_records=None, **none, **seconds
        )
        for n in range(3)
    ]
    reports[2] = replace(reports[2], unexpected_rows=(("positive", 5), ("small", 1)))
    measure_tables([(report, settings) for report in reports], "query", registry=registry)
    assert registry.asked == 1
    assert [json.loads(line)["table"] for line in lines.read_text().splitlines()] == ["t0", "t1", "t2"]
    assert [samples(prom.read_text(), f"t{n}")["bucketline_input_rows_total", ()] for n in range(3)] == [0, 1, 2]
    unmet = samples(prom.read_text(), "t2")
    found = {
        name: unmet["bucketline_unexpected_rows_total", (("expectation", name),)] for name in ("positive", "small")
    }
    assert found == {"positive": 5, "small": 1}
