"""What object stores do on their own: names, parts, ranges, conflicts, errors, and how many requests it takes."""

import os
import pickle
import random
import re
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from bucketline.state.errors import StorageError
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.storage.objects.object_io import ObjectIO, requests_sent
from bucketline.state.store.storage.objects.object_store import MOST_CLIENTS, StoreKind, clients_of
from bucketline.state.store.storage.objects.object_writer import PART_BYTES
from bucketline.state.store.storage.ranged_reader import TAIL_BYTES
from bucketline.state.store.storage.requests import RequestCounts
from tests.support.servers.azurite import Azurite
from tests.support.servers.fake_gcs import FakeGcs
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.servers.s3_server import BUCKET, S3Server, make_bucket, object_io, parts_left, wait_until

NAMES = ["k=a%20b", "sp ace", "a%2Fb", "til~de", "ha#sh", "ünï", "a?b", "a+b", "a*b", "c:d", "x{y}", 'q"z', "[l]", "^c"]


EMULATED = [pytest.param(name, marks=pytest.mark.stores) for name in ("azurite", "versitygw", "fake_gcs")]


@pytest.fixture(params=["s3_server", *EMULATED])
def place(request: pytest.FixtureRequest) -> tuple[ObjectIO, str]:
    server: S3Server | Azurite | FakeGcs = request.getfixturevalue(request.param)
    return server.new_folder()


def test_keys_are_taken_as_they_are(place: tuple[ObjectIO, str]) -> None:
    """Partition folders are escaped already: `%` stands for itself."""
    io, root = place
    for name in NAMES:
        io.write_new(f"{root}/{name}/f", name.encode())
    assert [io.read(f"{root}/{name}/f") for name in NAMES] == [name.encode() for name in NAMES]
    assert io.list_names(root) == sorted(NAMES)
    assert [f.path for f in io.list_files(root)] == sorted(f"{root}/{name}/f" for name in NAMES)
    io.delete_folder(root)
    assert io.list_files(root) == []


@pytest.mark.parametrize("size", [0, 1, TAIL_BYTES, TAIL_BYTES + 1, 2 * PART_BYTES, 2 * PART_BYTES + 1])
def test_files_of_every_size_come_back_by_any_ranges(size: int, place: tuple[ObjectIO, str]) -> None:
    io, root = place
    rng = random.Random(size)
    data, path = rng.randbytes(size), f"{root}/f"
    with io.open_output(path) as sink:
        at = 0
        while at < size:
            step = rng.randrange(1, 3 << 20)
            sink.write(data[at : at + step])
            at = min(size, at + step)
            assert sink.tell() == at
    assert io.size(path) == size
    with io.open_input(path) as source:
        assert source.size() == size
        assert source.read() == data
        source.seek(0)
        assert b"".join(iter(lambda: source.read(777_777), b"")) == data
        for _ in range(20):
            start = rng.randrange(size + 1)
            length = rng.randrange(size + 1 - start)
            assert source.read_at(length, start) == data[start : start + length]


def test_a_small_file_is_one_request_to_write_and_one_to_read(place: tuple[ObjectIO, str]) -> None:
    io, root = place
    before = io.requests
    with io.open_output(f"{root}/f") as sink:
        sink.write(b"x" * 1000)
    with io.open_input(f"{root}/f") as source:
        assert source.size() == 1000
        source.read_at(10, 0)
        source.read_at(10, 900)
    is_azure = io.address.kind is StoreKind.AZURE  # It does not send the end of a file of unknown size.
    assert io.requests.since(before) == RequestCounts(get=1, put=1, head=int(is_azure))


def test_parts_of_an_upload_that_fails_are_removed(s3_server: S3Server, place: tuple[ObjectIO, str]) -> None:
    io, root = place
    sink = io.open_output(f"{root}/f")
    sink.write(b"x" * (2 * PART_BYTES))
    io.write_new(f"{root}/g", b"")
    del sink
    taken = io.open_output(f"{root}/g")
    with pytest.raises(StorageError, match="exists already"):
        taken.write(b"x" * (2 * PART_BYTES))
        taken.close()
    assert not io.exists(f"{root}/f") and io.read(f"{root}/g") == b""
    if dict(io.address.options).get("s3.endpoint") == s3_server.endpoint:
        folder = root.removeprefix(f"{BUCKET}/")
        wait_until(lambda: parts_left(s3_server.endpoint, BUCKET, folder) == [])


def test_a_second_process_gets_the_same_store_with_a_count_of_its_own(place: tuple[ObjectIO, str]) -> None:
    io, root = place
    io.write_new(f"{root}/f", b"1")
    assert pickle.loads(pickle.dumps(io)).read(f"{root}/f") == b"1"


def test_one_of_many_that_create_the_same_file_wins(place: tuple[ObjectIO, str]) -> None:
    io, root = place
    with ThreadPoolExecutor(8) as pool:
        for number in range(50):
            path = f"{root}/snapshot/snapshot-{number}"
            contents = [uuid.uuid4().bytes for _ in range(8)]
            won = list(pool.map(io.publish, [path] * 8, contents))
            assert sum(won) == 1
            assert io.read(path) == contents[won.index(True)]


def test_what_was_published_by_a_request_that_was_repeated_counts_as_won(place: tuple[ObjectIO, str]) -> None:
    io, root = place
    assert io.publish(f"{root}/s", b"uuid-1") is True
    assert io.publish(f"{root}/s", b"uuid-1") is True
    assert io.publish(f"{root}/s", b"uuid-2") is False


def test_a_bucket_that_does_not_exist_is_named_and_is_not_a_missing_file(s3_server: S3Server) -> None:
    io, root = object_io("s3://no-such-bucket/t", s3_server.endpoint)
    for call in (io.read, io.list_names, io.list_files, io.open_input):
        with pytest.raises(StorageError, match="NoSuchBucket") as caught:
            call(f"{root}/f")
        assert (caught.value.fields["missing"], caught.value.fields["retryable"]) == (False, False)
    with pytest.raises(StorageError, match="NoSuchBucket"):
        io.require_publish()


def test_a_bucket_is_tried_for_conditional_puts_once_and_left_as_it_was(s3_server: S3Server) -> None:
    bucket = f"b{uuid.uuid4().hex}"
    make_bucket(s3_server.endpoint, bucket)
    io, _ = object_io(f"s3://{bucket}/w/t", s3_server.endpoint)
    for _ in range(3):
        io.require_publish()
    assert io.requests == RequestCounts(get=1, put=2, delete=1)
    assert io.list_files(bucket) == []


def test_requests_are_counted_on_when_a_catalog_lends_other_keys(s3_server: S3Server) -> None:
    """A count that began anew would be lower after a batch than before it, and no counter takes that."""
    uri = s3_server.new_uri()
    io, path = file_io_for(uri, s3_server.storage)
    io.write_new(f"{path}/f", b"1")
    before = requests_sent(io)
    renewed, _ = file_io_for(uri, {**s3_server.storage, "s3.secret-key": "lent later"})
    assert renewed.read(f"{path}/f") == b"1"
    assert requests_sent(renewed).since(before) == requests_sent(io).since(before) == RequestCounts(get=1)


def test_clients_with_keys_that_were_replaced_are_let_go() -> None:
    """Each holds connections; a catalog lends new keys every few minutes."""
    for n in range(2 * MOST_CLIENTS):
        file_io_for("s3://bucket/t", {"s3.access-key": "some-key", "s3.secret-key": f"lent-{n}"})
    assert clients_of.cache_info().currsize <= MOST_CLIENTS


def test_a_store_that_is_not_there_is_a_passing_error() -> None:
    io, _ = object_io("s3://bucket/t", "http://127.0.0.1:1")
    with pytest.raises(StorageError) as caught:
        io.require_publish()
    assert caught.value.fields["retryable"] is True
    assert "some-key" not in caught.value.message and "\n" not in caught.value.message


def test_arrow_reads_columns_of_a_large_file_by_ranges(place: tuple[ObjectIO, str]) -> None:
    io, root = place
    rng = random.Random(7)
    table = pa.table({"wide": [rng.randbytes(100) for _ in range(40_000)], "n": range(40_000)})
    path = f"{root}/f.parquet"
    with io.open_output(path) as sink:
        pa.parquet.write_table(table, sink, compression="none")
    before = io.requests
    with io.open_input(path) as source:
        assert pa.parquet.read_table(source, columns=["n"]).equals(table.select(["n"]))
    assert io.requests.since(before).total <= 4


def test_a_role_and_a_profile_get_their_keys_from_where_aws_keeps_them(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signature names the key that was used."""
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "credentials").write_text("[etl]\naws_access_key_id = FROM_PROFILE\naws_secret_access_key = k\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "etl")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", s3_server.endpoint)
    with FaultProxy(s3_server.endpoint, lambda method, path: None) as proxy:
        place = {"s3.endpoint": proxy.endpoint, "s3.path.style.access": "true", "s3.region": "us-east-1"}
        role = {"s3.assumed.role.arn": "arn:aws:iam::123456789012:role/etl"}
        for options in (place, {**place, **role}):
            io, root = file_io_for(f"s3://{BUCKET}/{uuid.uuid4().hex}", options)
            io.write_new(f"{root}/f", b"1")
            assert io.read(f"{root}/f") == b"1"
    used = {found[1] for text in proxy.signed if (found := re.search("Credential=([^/]+)/", text))}
    assert "FROM_PROFILE" in used
    assert len(used) == 2 and any(key.startswith("ASIA") for key in used)


def test_a_forked_process_says_so_and_does_not_wait_for_ever(s3_server: S3Server) -> None:
    program = f"""if True:
        import os
        from tests.support.servers.s3_server import object_io
        io, root = object_io("s3://{BUCKET}/{uuid.uuid4().hex}", "{s3_server.endpoint}")
        io.write_new(root + "/f", b"1")
        child = os.fork()
        try:
            io.read(root + "/f")
        except Exception as e:
            print(e, flush=True)
            os._exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert "forked" in done.stdout and "spawn" in done.stdout and done.stdout.endswith("3\n")
