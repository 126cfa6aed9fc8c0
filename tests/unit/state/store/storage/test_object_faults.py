"""Tables on S3 behind a proxy that loses answers, repeats requests, refuses and delays: no row lost or doubled."""

import random
import re
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from bucketline.conf.errors import BucketlineError
from bucketline.state.errors import CommitOutcomeUnknownError, UnsupportedTableError
from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.table.table import create_table, open_table
from tests.support.servers.fault_proxy import FaultProxy, Trouble
from tests.support.servers.s3_server import S3Server, make_bucket, object_io, storage_of

COLUMNS = pa.schema([pa.field("writer", pa.int32()), pa.field("number", pa.int32())])
HARMLESS = [t for t in Trouble if t not in (Trouble.CONDITION_IGNORED, Trouble.FORBIDDEN)]
ANYWHERE = [t for t in HARMLESS if t not in (Trouble.CONFLICT, Trouble.CONDITION_FAILED)]
"""Those that also come to requests without a condition."""


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint, lambda method, path: None) as found:
        yield found


@pytest.mark.parametrize(
    "folder", ["bucket-", "manifest/manifest-list-", "manifest/manifest-", "snapshot/snapshot-", "LATEST"]
)
def test_each_trouble_of_each_request_that_writes_leaves_one_copy_of_the_rows(
    folder: str, proxy: FaultProxy, s3_server: S3Server
) -> None:
    uri = s3_server.new_uri()
    create_table(uri, COLUMNS, storage_options=s3_server.storage)
    for number, trouble in enumerate(HARMLESS):
        left = [trouble]

        def choose(method: str, path: str, left: list[Trouble] = left) -> Trouble | None:
            return left.pop() if left and method in ("PUT", "POST") and folder in path else None

        proxy.choose = choose
        table = open_table(uri, storage_options=storage_of(proxy.endpoint))
        table.write(pa.table({"writer": [0], "number": [number]}, COLUMNS))
    assert [trouble for _, _, trouble in proxy.done] == HARMLESS
    rows = open_table(uri, storage_options=s3_server.storage).to_arrow()
    assert sorted(rows["number"].to_pylist()) == list(range(len(HARMLESS)))
    assert examine(open_to_examine(uri, storage_options=s3_server.storage), rows=True) == []


def test_writers_side_by_side_lose_and_double_no_row(proxy: FaultProxy, s3_server: S3Server) -> None:
    uri = s3_server.new_uri()
    create_table(uri, COLUMNS, storage_options=s3_server.storage)
    rng = random.Random(16)

    def choose(method: str, path: str) -> Trouble | None:
        return rng.choice(HARMLESS if method == "PUT" else ANYWHERE) if rng.random() < 0.15 else None

    proxy.choose = choose

    def write(writer: int, number: int) -> str:
        try:
            table = open_table(uri, storage_options=storage_of(proxy.endpoint))
            table.write(pa.table({"writer": [writer], "number": [number]}, COLUMNS))
        except CommitOutcomeUnknownError:
            return "unknown"
        except BucketlineError as e:
            return f"not written: {e.code}: {e}"
        return "written"

    tasks = [(w, n) for n in range(8) for w in range(3)]
    with ThreadPoolExecutor(3) as pool:
        said = dict(zip(tasks, pool.map(lambda t: write(*t), tasks), strict=True))
    rows = open_table(uri, storage_options=s3_server.storage).to_arrow()
    found = Counter(zip(rows["writer"].to_pylist(), rows["number"].to_pylist(), strict=True))
    assert len(proxy.done) > 30
    assert Counter(said.values())["written"] > len(tasks) // 2, said
    assert [t for t in tasks if said[t] == "written" and found[t] != 1] == []
    assert [(t, said[t]) for t in tasks if said[t].startswith("not written") and found[t] != 0] == []
    assert max(found.values()) == 1
    # The hint LATEST may be behind: a writer could not write it, or one that committed earlier wrote it later.
    open_table(uri, storage_options=s3_server.storage).write(pa.table({"writer": [3], "number": [0]}, COLUMNS))
    assert open_table(uri, storage_options=s3_server.storage).to_arrow().num_rows == rows.num_rows + 1
    snapshots = object_io(uri, s3_server.endpoint)[0].list_names(f"{uri.removeprefix('s3://')}/snapshot")
    ids = sorted(int(m[1]) for name in snapshots if (m := re.fullmatch(r"snapshot-(\d+)", name)))
    assert ids == list(range(1, len(ids) + 1))
    assert examine(open_to_examine(uri, storage_options=s3_server.storage), rows=True) == []


@pytest.mark.parametrize("trouble", HARMLESS)
def test_trouble_while_a_store_is_tried_says_nothing_about_it(
    trouble: Trouble, proxy: FaultProxy, s3_server: S3Server
) -> None:
    for struck in range(2):
        bucket = f"b{uuid.uuid4().hex}"
        make_bucket(s3_server.endpoint, bucket)
        seen: list[str] = []

        def choose(method: str, path: str, seen: list[str] = seen, struck: int = struck) -> Trouble | None:
            seen.append(method)
            return trouble if method == "PUT" and seen.count("PUT") == struck + 1 else None

        proxy.choose = choose
        io, _ = object_io(f"s3://{bucket}/t", proxy.endpoint)
        io.require_publish()
        assert io.list_files(bucket) == []


def test_a_store_that_ignores_the_condition_is_refused_and_no_metadata_is_written(
    proxy: FaultProxy, s3_server: S3Server
) -> None:
    proxy.choose = lambda method, path: Trouble.CONDITION_IGNORED
    uri = s3_server.new_uri()
    create_table(uri, COLUMNS, storage_options=s3_server.storage)
    io, root = object_io(uri, proxy.endpoint)
    before = io.list_files(root)
    table = open_table(uri, storage_options=storage_of(proxy.endpoint))
    for _ in range(2):
        with pytest.raises(UnsupportedTableError, match="If-None-Match"):
            table.write(pa.table({"writer": [0], "number": [0]}, COLUMNS))
    with pytest.raises(UnsupportedTableError, match="'lake'"):
        create_table(s3_server.new_uri(), COLUMNS, storage_options=storage_of(proxy.endpoint))
    assert [f.path for f in io.list_files(root) if "/bucket-" not in f.path] == [f.path for f in before]
    assert open_table(uri, storage_options=storage_of(proxy.endpoint)).to_arrow().num_rows == 0
