"""Keys of S3 that end while they are used: they are renewed, nothing is lost or done twice, and nobody sees them."""

import logging
import os
import pickle
import random
import uuid
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.errors import StorageError
from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.storage.objects.object_io import ObjectIO
from bucketline.state.store.storage.objects.object_writer import PART_BYTES
from bucketline.state.store.table.table import create_table, open_table
from tests.support.servers.fault_proxy import FaultProxy, Trouble
from tests.support.servers.key_lender import SECRET, TOKEN, KeyLender
from tests.support.servers.s3_server import BUCKET, S3Server, make_bucket, storage_of

COLUMNS = pa.schema([pa.field("number", pa.int32())])


@pytest.fixture
def lender(s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyLender]:
    """Keys that are good for an hour, unless the test ends them."""
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with KeyLender(s3_server.endpoint, renewed_s=3600, ends_s=3600) as found:
        for name, value in found.environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        yield found


def place(endpoint: str) -> dict[str, str]:
    """The storage options that say where the store is, and hold no keys."""
    return {key: value for key, value in storage_of(endpoint).items() if not key.endswith("-key")}


def new_io(lender: KeyLender) -> tuple[ObjectIO, str]:
    io, root = file_io_for(f"s3://{BUCKET}/{uuid.uuid4().hex}", place(lender.endpoint))
    assert isinstance(io, ObjectIO)
    return io, root


def test_each_request_goes_on_with_new_keys_when_the_old_ones_have_ended(lender: KeyLender) -> None:
    io, root = new_io(lender)
    io.require_publish()
    for name in ("a", "b", "c/d"):
        io.write_new(f"{root}/{name}", b"1")
    large = random.Random(1).randbytes(2 * PART_BYTES)
    source = io.open_input(f"{root}/a")

    def written() -> bytes:
        with io.open_output(f"{root}/large") as sink:
            sink.write(large)
        return io.read(f"{root}/large")

    calls = {
        "read": (lambda: io.read(f"{root}/a"), b"1"),
        "read by range": (lambda: (source.seek(0), source.read())[1], b"1"),
        "open": (lambda: io.open_input(f"{root}/b").read(), b"1"),
        "write": (lambda: io.write_new(f"{root}/e", b"2"), None),
        "upload": (written, large),
        "publish": (lambda: io.publish(f"{root}/snapshot-1", b"3"), True),
        "publish what is taken": (lambda: io.publish(f"{root}/snapshot-1", b"4"), False),
        "overwrite": (lambda: io.overwrite(f"{root}/LATEST", b"1"), None),
        "size": (lambda: io.size(f"{root}/a"), 1),
        "exists": (lambda: io.exists(f"{root}/none"), False),
        "list": (lambda: io.list_names(root), ["LATEST", "a", "b", "c", "e", "large", "snapshot-1"]),
        "list all": (lambda: len(io.list_files(root)), 7),
        "delete": (lambda: io.delete(f"{root}/b"), None),
        "delete a folder": (lambda: io.delete_folder(f"{root}/c"), None),
    }
    for name, (call, answer) in calls.items():
        before = lender.lent
        lender.end_now()
        assert call() == answer, name
        assert lender.lent <= before + 2, name
    assert io.list_names(root) == ["LATEST", "a", "e", "large", "snapshot-1"]
    assert io.read(f"{root}/snapshot-1") == b"3"


@pytest.mark.parametrize("folder", ["bucket-", "manifest/manifest-", "snapshot/snapshot-", "snapshot/LATEST"])
def test_a_commit_whose_keys_end_at_any_step_is_made_once(
    folder: str, lender: KeyLender, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = f"s3://{BUCKET}/{uuid.uuid4().hex}/shop.db/t"
    struck: dict[int, str] = {}
    one_at_a_time = Lock()

    def choose(method: str, path: str) -> Trouble | None:
        # Manifests are put side by side: keys end once a write, else the new ones would end under another request.
        with one_at_a_time:
            if method == "PUT" and folder in path and number not in struck:
                struck[number] = path
                lender.end_now()
        return None

    number = -1
    with FaultProxy(lender.endpoint, lambda method, path: None) as proxy:
        create_table(uri, COLUMNS, storage_options=place(proxy.endpoint))
        proxy.choose = choose
        for number in range(2):
            table = open_table(uri, storage_options=place(proxy.endpoint))
            assert table.write(pa.table({"number": [number]}, COLUMNS)) == number + 1
        assert len(struck) >= (1 if folder.endswith("LATEST") else 2) and len(lender.refused) >= len(struck)
        table = open_table(uri, storage_options=place(proxy.endpoint))
        assert sorted(table.to_arrow()["number"].to_pylist()) == [0, 1]
        assert examine(open_to_examine(uri, storage_options=place(proxy.endpoint)), rows=True) == []


def test_keys_that_are_not_renewed_end_a_write_with_a_remedy_and_leave_the_table_as_it_was(
    lender: KeyLender, s3_server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer to the snapshot's conditional put says that nothing was done, and so does what is read back."""
    caplog.set_level(logging.DEBUG)
    uri = s3_server.new_uri()
    create_table(uri, COLUMNS, storage_options=s3_server.storage).write(pa.table({"number": [0]}, COLUMNS))
    lender.lend()
    given = {"s3.access-key": "LENT1", "s3.secret-key": f"{SECRET}-1", "s3.session.token": f"{TOKEN}-1"}

    def choose(method: str, path: str) -> Trouble | None:
        if method == "PUT" and "/snapshot/snapshot-" in path:
            lender.end_now()
        return None

    with FaultProxy(lender.endpoint, choose) as proxy:
        table = open_table(uri, storage_options={**place(proxy.endpoint), **given})
        with pytest.raises(Exception, match=r"ExpiredToken.*not renewed.*start again") as caught:
            table.write(pa.table({"number": [1]}, COLUMNS))
    shown = f"{caught.value!r} {caught.value} {caught.value.__dict__} {table!r} {caplog.text}"
    assert SECRET not in shown and TOKEN not in shown
    again = open_table(uri, storage_options=s3_server.storage)
    assert again.to_arrow()["number"].to_pylist() == [0]
    assert again.write(pa.table({"number": [1]}, COLUMNS)) == 2
    assert examine(open_to_examine(uri, storage_options=s3_server.storage), rows=True) == []


def test_a_store_that_is_tried_with_keys_that_have_ended_is_not_taken_for_one_without_conditions(
    lender: KeyLender, s3_server: S3Server
) -> None:
    bucket = f"b{uuid.uuid4().hex}"
    make_bucket(s3_server.endpoint, bucket)
    lender.lend()
    lender.end_now()
    given = {"s3.access-key": "LENT1", "s3.secret-key": f"{SECRET}-1", "s3.session.token": f"{TOKEN}-1"}
    io, _ = file_io_for(f"s3://{bucket}/t", {**place(lender.endpoint), **given})
    for _ in range(2):
        with pytest.raises(StorageError, match="ExpiredToken"):
            io.require_publish()


@pytest.mark.parametrize("place_of_keys", ["instance", "process"])
def test_keys_are_renewed_wherever_they_come_from(
    place_of_keys: str, lender: KeyLender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in getattr(lender, f"environment_of_{place_of_keys}")(tmp_path).items():
        monkeypatch.setenv(name, value)
    # Nobody has clients of that place yet.
    io, root = file_io_for(f"s3://{BUCKET}/{uuid.uuid4().hex}", {**place(lender.endpoint), "s3.attempts.maximum": "2"})
    io.write_new(f"{root}/a", b"1")
    lender.end_now()
    assert io.read(f"{root}/a") == b"1"
    assert lender.refused and len(lender.keys_for("GET", "/a")) == 2


def test_keys_do_not_travel_with_the_storage_and_are_asked_for_where_it_arrives(lender: KeyLender) -> None:
    io, root = new_io(lender)
    io.write_new(f"{root}/a", b"1")
    sent = pickle.dumps(io)
    assert SECRET.encode() not in sent and TOKEN.encode() not in sent and b"LENT" not in sent
    assert SECRET not in repr(io) and TOKEN not in repr(io)
    assert pickle.loads(sent).read(f"{root}/a") == b"1"


def test_a_profile_whose_keys_are_replaced_in_its_file_is_read_again(
    lender: KeyLender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What renews keys for people and machines often writes them into this file."""

    def write_keys(number: int) -> None:
        lender.lend()
        lines = {
            "aws_access_key_id": f"LENT{number}",
            "aws_secret_access_key": f"{SECRET}-{number}",
            "aws_session_token": f"{TOKEN}-{number}",
        }
        (tmp_path / "credentials").write_text("[etl]\n" + "".join(f"{k} = {v}\n" for k, v in lines.items()))

    for name in ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
        monkeypatch.delenv(name)
    for name, value in {"AWS_SHARED_CREDENTIALS_FILE": "credentials", "AWS_CONFIG_FILE": "config"}.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.setenv("AWS_PROFILE", "etl")
    write_keys(1)
    io, root = new_io(lender)
    io.write_new(f"{root}/a", b"1")
    lender.end_now()
    write_keys(2)
    assert io.read(f"{root}/a") == b"1"
    assert set(lender.used) == {1, 2}
    lender.end_now()
    (tmp_path / "credentials").write_text("[etl]\n")
    with pytest.raises((StorageError, OptionError), match="'etl' has no access keys"):
        io.read(f"{root}/a")
    monkeypatch.setenv("AWS_PROFILE", "other")
    with pytest.raises(OptionError, match="other"):
        file_io_for(f"s3://{BUCKET}/t", {**place(lender.endpoint), "s3.region": "eu-west-1"})
