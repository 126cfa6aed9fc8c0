"""Uploads in parts that a killed process has left on S3: orphan removal finds them, and gives them up."""

import json
import subprocess
import sys
import uuid
from datetime import timedelta

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.state.determinism import SYSTEM_WORLD
from bucketline.state.store.storage.objects.unended_uploads import end_upload, unended_uploads
from bucketline.state.store.storage.storage_clock import storage_now_ms
from bucketline.state.store.table.table import handle_of
from tests.support.servers.fault_proxy import FaultProxy, Trouble
from tests.support.servers.s3_server import BUCKET, S3Server, storage_of, wait_until

PROGRAM = """if True:
    import json, sys
    from bucketline.state.store.storage.file_io import file_io_for
    from bucketline.state.store.storage.objects.object_writer import PART_BYTES
    uri, storage = sys.argv[1], json.loads(sys.argv[2])
    io, root = file_io_for(uri, storage)
    sink = io.open_output(root + "/bucket-0/data-killed-0.parquet")
    sink.write(b"x" * (3 * PART_BYTES))
    print("written", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("name", ["s3_server", pytest.param("versitygw", marks=pytest.mark.stores)])
def test_what_a_killed_process_has_uploaded_is_found_and_given_up(name: str, request: pytest.FixtureRequest) -> None:
    server: S3Server = request.getfixturevalue(name)
    uri, storage = server.new_uri(), server.storage
    table = bl.create_table(uri, "id INT", storage_options=storage)
    table.write(pa.table({"id": pa.array([1], pa.int32())}))
    io, folder = handle_of(table).io, f"{BUCKET}/{uri.removeprefix(f's3://{BUCKET}/').partition('/')[0]}"
    for number, place in enumerate((uri, f"{uri}/of-others"), 1):
        command = [sys.executable, "-c", PROGRAM, place, json.dumps(storage)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "written\n"
        wait_until(lambda number=number: len(unended_uploads(io, folder)) == number)  # type: ignore[misc]
        process.kill()
        process.communicate()
    begun = max(upload.modified_ms for upload in unended_uploads(io, folder))
    wait_until(lambda: storage_now_ms(io, table.path, SYSTEM_WORLD) > begun)
    [found] = table.remove_orphan_files(older_than=timedelta(0)).files
    assert found.path.startswith(f"{table.path}/bucket-0/data-killed-0.parquet?uploadId=")
    [removed] = table.remove_orphan_files(dry_run=False, older_than=timedelta(0), no_writers=True).files
    assert removed == found
    end_upload(io, found)
    [left] = unended_uploads(io, folder)
    assert left.path.startswith(f"{table.path}/of-others/")
    assert table.remove_orphan_files(older_than=timedelta(0)).files == () and table.to_arrow().num_rows == 1


def test_keys_that_may_not_list_uploads_are_a_warning_and_no_error(
    s3_server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    uri = s3_server.new_uri()
    bl.create_table(uri, "id INT", storage_options=s3_server.storage)

    def choose(method: str, path: str) -> Trouble | None:
        return Trouble.FORBIDDEN if "uploads" in path else None

    with FaultProxy(s3_server.endpoint, choose) as proxy:
        table = bl.open_table(uri, storage_options=storage_of(proxy.endpoint))
        assert table.remove_orphan_files().files == () and len(proxy.done) == 1
        io = handle_of(table).io
        assert unended_uploads(io, f"{BUCKET}/{uuid.uuid4().hex}") == []
    warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(warned) == 2 and all("AccessDenied" in text and "some-key" not in text for text in warned)
