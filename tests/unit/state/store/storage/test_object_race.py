"""Processes that publish and commit to one object store at the same time."""

import json
import random
import subprocess
import sys
from contextlib import suppress

import pyarrow as pa
import pytest

from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.table.table import create_table, open_table
from tests.support.servers.azurite import Azurite
from tests.support.servers.fake_gcs import FakeGcs
from tests.support.servers.s3_server import S3Server
from tests.support.servers.versitygw import VersityGateway

EXCHANGE_TIMEOUT_S = 1500


pytestmark = [pytest.mark.stores, pytest.mark.timeout(1800)]


@pytest.fixture(params=["azurite", "versitygw", "fake_gcs"])
def server(request: pytest.FixtureRequest) -> S3Server | Azurite | FakeGcs:
    found: S3Server | Azurite | FakeGcs = request.getfixturevalue(request.param)
    return found


def run(what: str, server: S3Server | Azurite | FakeGcs, uri: str, *, processes: int, count: int) -> list[list[int]]:
    """What each process did; they begin together."""
    command = [sys.executable, "-m", "tests.support.processes.object_worker", what, json.dumps(server.storage), uri]
    started = [
        subprocess.Popen([*command, str(n), str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for n in range(processes)
    ]
    for process in started:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=EXCHANGE_TIMEOUT_S)[0] for process in started]
    assert [process.returncode for process in started] == [0] * processes
    return [[int(n) for n in text.split()] for text in said]


def test_one_of_sixteen_processes_that_create_the_same_file_wins_each_time(
    server: S3Server | Azurite | FakeGcs,
) -> None:
    won = run("publish", server, server.new_uri(), processes=16, count=200)
    assert sorted(n for of_one in won for n in of_one) == list(range(200))


def test_a_writer_that_is_killed_at_any_moment_leaves_each_row_once(versitygw: S3Server) -> None:
    """What it said to be written is there; what it was at may be there or not."""
    uri, count, chance = versitygw.new_uri(), 100, random.Random(16)
    create_table(uri, pa.schema([("number", pa.int64())]), storage_options=versitygw.storage)
    said: set[int] = set()
    for number in range(5):
        command = [
            sys.executable,
            "-m",
            "tests.support.processes.object_worker",
            "write-on",
            json.dumps(versitygw.storage),
            uri,
        ]
        process = subprocess.Popen(
            [*command, str(number), str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        said |= {int(process.stdout.readline()) for _ in range(chance.randint(1, 5))}
        with suppress(subprocess.TimeoutExpired):
            # A commit takes some 0.1 seconds: it is struck at any of its steps.
            process.wait(chance.random() / 5)
        process.kill()
        rest = process.communicate(timeout=EXCHANGE_TIMEOUT_S)[0]
        said |= {int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")}
    table = open_table(uri, storage_options=versitygw.storage)
    table.write(pa.table({"number": [-1]}))
    found = open_table(uri, storage_options=versitygw.storage).to_arrow()["number"].to_pylist()
    assert len(found) == len(set(found)) and said <= set(found) and len(found) <= len(said) + 1 + 5
    assert examine(open_to_examine(uri, storage_options=versitygw.storage), rows=True) == []


def test_four_processes_that_commit_leave_dense_snapshots_and_each_row_once(
    server: S3Server | Azurite | FakeGcs,
) -> None:
    uri, count = server.new_uri(), 50 if isinstance(server, VersityGateway) else 12
    create_table(
        uri,
        pa.schema([("number", pa.int64())]),
        options={"commit.max-retries": "100"},
        storage_options=server.storage,
    )
    done = run("write", server, uri, processes=4, count=count)
    assert [len(of_one) for of_one in done] == [count] * 4
    rows = open_table(uri, storage_options=server.storage).to_arrow()
    assert sorted(rows["number"].to_pylist()) == list(range(4 * count))
    io, root = file_io_for(uri, server.storage)
    ids = {name for name in io.list_names(f"{root}/snapshot") if name.startswith("snapshot-")}
    assert ids == {f"snapshot-{n + 1}" for n in range(4 * count)}
    assert examine(open_to_examine(uri, storage_options=server.storage), rows=True) == []
