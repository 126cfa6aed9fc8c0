"""Storage options: which there are, who is given them, and that no table ever holds one."""

import json
import pickle
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.conf.resolve import read_settings, resolve_job
from bucketline.conf.storage_options import (
    STORAGE_OPTIONS,
    check_storage_options,
    hdfs_settings,
    known_storage_options,
    s3_settings,
)
from bucketline.state.commit.schema_change import SetOption
from bucketline.state.format.index.index_manifest import decode_index_manifest, encode_index_manifest
from bucketline.state.format.manifest import (
    decode_manifest,
    decode_manifest_list,
    encode_manifest,
    encode_manifest_list,
)
from bucketline.state.store.doctor.examine import examine, open_to_examine
from bucketline.state.store.storage import file_io, plain_io
from bucketline.state.store.storage.objects.object_io import ObjectIO
from bucketline.state.store.storage.objects.object_store import clients_of
from bucketline.state.store.table.table import Table, create_table, handle_of, open_table
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.batch.live_table import forget_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.decode.decoder import DecodedRows
from bucketline.streaming.job.job_table import open_or_create
from tests.support.arrow_io import ArrowIO
from tests.support.tasks import Cluster

COLUMNS = "id BIGINT NOT NULL, v BIGINT, pt INT"
HOST = "hdfs://namenode"
STORAGE = {"s3.access-key": "AKIA1234", "s3.secret-key": "hunter2", "s3.endpoint": "http://here:9000"}
KEYS = ("AKIA1234", "hunter2")


class Store:
    """What `hdfs://namenode/` stands for; it opens for those who have the keys, and notes who asks without."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.opened = 0
        self.asked: list[str] = []
        self.without: list[str] = []

    def open(self, uri: str, storage: Mapping[str, str]) -> tuple[ArrowIO, str]:
        self.opened += 1
        self.asked.append(uri)
        if dict(storage) != STORAGE:
            self.without.append(uri)
        files = fs.SubTreeFileSystem(str(self.root), fs.LocalFileSystem())
        return ArrowIO(files, put_if_absent=self._put), uri.removeprefix(HOST).strip("/")

    def _put(self, path: str, data: bytes) -> bool:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():
            return False
        target.write_bytes(data)
        return True

    def texts(self) -> Iterator[bytes]:
        return (f.read_bytes() for f in self.root.rglob("*") if f.is_file())


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    root = tmp_path / "store"
    root.mkdir()
    found = Store(root)
    monkeypatch.setattr(plain_io, "hdfs_io_for", found.open)
    return found


MODES = {
    "fixed": (("id",), (), {"bucket": "2"}),
    "dynamic": (("id",), (), {"bucket": "-1"}),
    "cross-partition": (("id",), ("pt",), {"bucket": "-1"}),
    "postpone": (("id",), (), {"bucket": "-2"}),
    "append": ((), (), {}),
    "deletion-vectors": (("id",), (), {"bucket": "1", "deletion-vectors.enabled": "true"}),
    "lookup": (("id",), ("pt",), {"bucket": "1", "changelog-producer": "lookup"}),
}


@pytest.mark.parametrize("mode", MODES)
def test_every_way_into_the_storage_is_given_them_and_nothing_that_is_stored_holds_them(
    mode: str, store: Store, tmp_path: Path
) -> None:
    primary_key, partition_by, options = MODES[mode]
    keys = primary_key if mode != "lookup" else ("id", "pt")
    uri = f"{HOST}/w/shop.db/t"
    create_table(uri, COLUMNS, keys, partition_by, options, storage_options=STORAGE)
    full = {} if mode == "lookup" or not keys else {"full-compaction.delta-commits": "2"}
    sink = TableSink(
        uri,
        {"local-directory": str(tmp_path / "local"), **full},
        storage_options=STORAGE,
        checkpoint=f"{HOST}/checkpoint",
        decode=_as_is,
    )
    for number in range(4):
        _write_batch(sink, number)
    forget_table(uri, "query")
    _write_batch(sink, 3)
    table = bl.open_table(uri, storage_options=STORAGE)
    _look_after(table)
    assert table.refreshed().to_arrow().num_rows > 0
    assert examine(open_to_examine(uri, storage_options=STORAGE), rows=True) == []
    assert store.without == [] and store.opened > 5
    assert not [key for text in store.texts() for key in KEYS if key.encode() in text]
    assert not [
        key for key in KEYS if key in f"{sink!r} {table!r} {handle_of(table).table_schema!r} {table.refreshed()!r}"
    ]
    assert pickle.loads(pickle.dumps(sink)).storage_options == STORAGE


def _move_away(store: Store, table: str) -> None:
    """Puts all data files and index files of a table where another table is, and says in its metadata that they are
    there; as Paimon does with `data-file.external-paths`."""
    root, away = store.root / table, store.root / "elsewhere"
    away.mkdir(exist_ok=True)
    there = f"{HOST}/elsewhere"
    for file in [*root.glob("index/*"), *root.rglob("bucket-*/*")]:
        file.rename(away / file.name)
    for file in (root / "manifest").iterdir():
        if file.name.startswith("index-manifest-"):
            moved = [
                replace(e, external_path=f"{there}/{e.file_name}") for e in decode_index_manifest(file.read_bytes())
            ]
            file.write_bytes(encode_index_manifest(moved))
        elif not file.name.startswith("manifest-list-"):
            entries = decode_manifest(file.read_bytes())
            files = (replace(e.file, external_path=f"{there}/{e.file.file_name}") for e in entries)
            file.write_bytes(encode_manifest([replace(e, file=f) for e, f in zip(entries, files, strict=True)]))
    for file in (root / "manifest").glob("manifest-list-*"):
        metas = decode_manifest_list(file.read_bytes())
        sizes = [(root / "manifest" / m.file_name).stat().st_size for m in metas]
        file.write_bytes(encode_manifest_list([replace(m, file_size=n) for m, n in zip(metas, sizes, strict=True)]))
    for file in [*root.rglob("snapshot/snapshot-*"), *root.rglob("tag/tag-*")]:
        found = json.loads(file.read_text())
        file.write_text(json.dumps({k: v for k, v in found.items() if not k.endswith("Size")}))


@pytest.mark.parametrize("mode", ["fixed", "dynamic", "cross-partition", "append", "deletion-vectors"])
def test_files_that_lie_elsewhere_are_reached_with_them(mode: str, store: Store, tmp_path: Path) -> None:
    primary_key, partition_by, options = MODES[mode]
    uri = f"{HOST}/w/shop.db/t"
    create_table(uri, COLUMNS, primary_key, partition_by, options, storage_options=STORAGE)

    def sink(number: int) -> TableSink:
        """With a local folder of its own, as on a new machine: the key index is built from the table."""
        return TableSink(uri, {"local-directory": str(tmp_path / str(number))}, storage_options=STORAGE, decode=_as_is)

    for number in range(3):
        _write_batch(sink(0), number)
    before = bl.open_table(uri, storage_options=STORAGE).to_arrow()
    _move_away(store, "w/shop.db/t")
    forget_table(uri, "query")
    store.asked.clear()

    table = bl.open_table(uri, storage_options=STORAGE)
    assert table.to_arrow().sort_by("id").equals(before.sort_by("id"))
    assert examine(open_to_examine(uri, storage_options=STORAGE), rows=True) == []
    _write_batch(sink(1), 3)
    table = table.refreshed()
    if primary_key:
        found = {r["id"]: r["v"] for r in table.to_arrow().to_pylist()}
        assert found == dict.fromkeys(range(50), 3)
        table.compact()
    else:
        assert table.to_arrow().num_rows == 200
    table.expire_snapshots(retain_max=1)
    table.remove_orphan_files(dry_run=False)
    assert examine(open_to_examine(uri, storage_options=STORAGE), rows=True) == []
    assert store.without == [] and [u for u in store.asked if u.startswith(f"{HOST}/elsewhere/")]


def test_the_partitions_of_a_fallback_branch_are_read_with_them(store: Store) -> None:
    uri = f"{HOST}/w/shop.db/t"
    options = {"bucket": "1", "file.format": "parquet"}
    table = create_table(uri, COLUMNS, ("id", "pt"), ("pt",), options, storage_options=STORAGE)
    rows = pa.table({"id": [1, 2], "v": [7, 8], "pt": [1, 2]}).cast(table.schema)
    table.write(rows)
    table.create_tag("x")
    table.create_branch("old", "x")
    table.overwrite(rows.slice(0, 1), partition={})
    _move_away(store, "w/shop.db/t")
    store.asked.clear()
    table = open_table(uri, options={"scan.fallback-branch": "old"}, storage_options=STORAGE)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2]
    assert store.without == [] and [u for u in store.asked if u.startswith(f"{HOST}/elsewhere/")]


def _as_is(records: pa.Table) -> DecodedRows:
    return DecodedRows(records)


def _write_batch(sink: TableSink, number: int) -> None:
    identity = BatchIdentity(
        "query", number, f"[{number - 1}]", f"[{number}]", f"digest {number}", checkpoint=sink.checkpoint
    )
    data = pa.table({"id": range(50), "v": [number] * 50, "pt": pa.array([(number + i) % 3 for i in range(50)])})
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("pt", pa.int32())])
    sink.write(Cluster(random.Random(number)).frame(data.cast(schema), 2), identity)


def _look_after(table: Table) -> None:
    rows = pa.table({"id": [1], "v": [7], "pt": [1]}).cast(table.schema)
    table.write(rows)
    table.create_tag("x")
    table = table.add_column("more", "INT")
    table.write(rows.append_column("more", pa.array([1], pa.int32())))
    table.compact()
    if table.options.get("bucket") == "2":
        table.rescale(3)
    table.to_arrow(snapshot="x")
    table.create_branch("b", "x")
    open_table(table.uri, options={"branch": "b"}, storage_options=STORAGE).to_arrow()
    table.delete_branch("b")
    table.expire_snapshots(retain_max=1)
    table.delete_tag("x")
    table.remove_orphan_files()
    table.files()


def test_a_job_reaches_table_and_bad_records_with_its_storage_section(store: Store) -> None:
    text = f"""
        table: {HOST}/w/shop.db/t
        source: {{format: rate}}
        checkpoint: /tmp/c
        storage: {{s3.access-key: AKIA1234, s3.secret-key: hunter2, "s3.endpoint": "http://here:9000"}}
        create: {{schema: "{COLUMNS}", primary-key: [id], options: {{bucket: "1"}}}}
    """
    config = resolve_job(read_settings(text, name="job.yaml"))
    assert handle_of(open_or_create(config)).storage == handle_of(open_or_create(config)).storage == STORAGE
    assert store.without == [] and "hunter2" not in repr(config)


@pytest.mark.parametrize(
    "key", ["s3.secret-key", "fs.oss.accessKeySecret", "hadoop.a", "s3.bogus", "dlf.access-key-id"]
)
def test_a_storage_option_among_options_of_tables_and_jobs_is_refused_with_the_remedy(key: str, tmp_path: Path) -> None:
    path, options = str(tmp_path / "t"), {key: "hunter2"}
    made = create_table(str(tmp_path / "made"), COLUMNS, ("id",), options={"bucket": "1"})
    job = {"table": path, "source.format": "rate", "checkpoint": "c", "create.schema": COLUMNS}

    def job_with(setting: str) -> str:
        return "\n".join(f"{k}={v}" for k, v in {**job, setting: "hunter2"}.items())

    ways = [
        lambda: create_table(path, COLUMNS, options=options),
        lambda: open_table(made.path, options=options),
        lambda: made.set_options(options),
        lambda: made.alter(SetOption(key, "hunter2")),
        lambda: TableSink(path, options),
        lambda: resolve_job(read_settings(job_with(f"options.{key}"), name="j.properties")),
        lambda: resolve_job(read_settings(job_with(f"create.options.{key}"), name="j.properties")),
    ]
    for way in ways:
        with pytest.raises(
            OptionError, match="storage_options= in Python, 'storage:' in a job file, --storage"
        ) as found:
            way()
        assert f"'{key}'" in found.value.message and "hunter2" not in f"{found.value!r} {found.value.fields}"
    assert not Path(path).exists()


def test_a_table_of_others_that_stores_such_options_is_written_as_it_is(tmp_path: Path) -> None:
    """Paimon's own jobs may leave them there; what counts is what the writer is given."""
    made = create_table(str(tmp_path / "t"), COLUMNS, ("id",), options={"bucket": "1"})
    schema = Path(made.path, "schema/schema-0")
    schema.write_text(schema.read_text().replace('"bucket"', '"s3.endpoint": "http://old",\n    "bucket"'))
    table = open_table(made.path)
    assert table.write(pa.table({"id": [1], "v": [1], "pt": [1]}).cast(table.schema)) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"s3.acess-key": "x"}, "unknown storage option 's3.acess-key'; did you mean 's3.access-key'?"),
        ({"bucket": "4"}, "unknown storage option 'bucket'"),
        ({"hadoop.": "x"}, "unknown storage option 'hadoop.'"),
        ({"security.kerberos.login.contexts": "x"}, "unknown storage option"),
        ({"s3.path.style.access": "perhaps"}, "'s3.path.style.access'"),
        ({"s3.access-key": "a"}, "'s3.secret-key' is not set"),
        ({"s3.session.token": "t"}, "'s3.session.token' needs 's3.access-key'"),
        ({"fs.oss.securityToken": "t"}, "'fs.oss.securityToken' needs 'fs.oss.accessKeyId'"),
        ({"s3.assumed.role.session.name": "n"}, "needs 's3.assumed.role.arn'"),
        ({"s3.endpoint": "http://h", "s3.connection.ssl.enabled": "true"}, "contradicts 's3.endpoint', which is http"),
        ({"s3.endpoint": "https://h", "fs.s3a.connection.ssl.enabled": "false"}, "which is https"),
        ({"s3.connection.ssl.enabled": "false"}, "= false needs 's3.endpoint'"),
        ({"s3.region": "a", "fs.s3a.endpoint.region": "b"}, "given twice"),
        ({"s3.attempts.maximum": "0"}, "must be at least 1"),
        ({"fs.gs.auth.type": "magic"}, "must be one of"),
        ({"fs.gs.auth.service.account.json.keyfile": "/k"}, "go together"),
        ({"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE"}, "go together"),
        ({"fs.oss.accessKeyId": "a"}, "'fs.oss.accessKeySecret' is not set"),
    ],
)
def test_what_is_no_storage_option_is_refused_by_name(options: dict[str, str], says: str, tmp_path: Path) -> None:
    for way in (
        lambda: check_storage_options(options),
        lambda: open_table(str(tmp_path), storage_options=options),
        lambda: create_table(str(tmp_path / "t"), COLUMNS, storage_options=options),
        lambda: TableSink("t", storage_options=options),
    ):
        with pytest.raises(OptionError) as caught:
            way()
        assert says in caught.value.message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("prefix", ["s3.", "s3a.", "fs.s3a.", "hadoop.fs.s3a."])
def test_the_spellings_of_s3_mean_the_same(prefix: str) -> None:
    given = {
        f"{prefix}access.key": "a",
        f"{prefix}secret-key": "hunter2",
        f"{prefix}endpoint": "http://h",
        f"{prefix}endpoint.region": "r",
        f"{prefix}path.style.access": "true",
        f"{prefix}connection.establish.timeout": "2 s",
    }
    found = s3_settings(check_storage_options(given))
    assert (found.access_key, found.secret_key, found.endpoint, found.region) == ("a", "hunter2", "http://h", "r")
    assert "hunter2" not in repr(found)
    assert (found.path_style, found.connect_timeout_ms) == (True, 2000)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("azure.account.key.acct.dfs.core.windows.net", "fs.azure.account.key.acct.dfs.core.windows.net"),
        ("hadoop.fs.azure.sas.fixed.token.acct", "fs.azure.sas.fixed.token.acct"),
        ("hadoop.fs.oss.endpoint", "fs.oss.endpoint"),
        ("hadoop.fs.gs.project.id", "fs.gs.project.id"),
    ],
)
def test_paimons_other_spellings_mean_the_same_option(given: str, name: str) -> None:
    assert dict(check_storage_options({given: "x"})) == {name: "x"}
    unknown = given.replace("account.key.", "").replace("sas.fixed.token.", "").replace(".id", "").replace("point", "")
    with pytest.raises(OptionError, match=f"unknown storage option '{unknown}'"):
        check_storage_options({unknown: "x"})


AZURE_KEY = "fs.azure.account.key.acct.dfs.core.windows.net"
AZURE_TOKEN = "fs.azure.sas.fixed.token.acct.blob.core.windows.net"
GCS = {"fs.gs.auth.type": "UNAUTHENTICATED", "fs.gs.storage.root.url": "http://h:1"}


OSS = {"fs.oss.endpoint": "oss-x.example.com", "fs.oss.accessKeyId": "a", "fs.oss.accessKeySecret": "hunter2"}


@pytest.mark.parametrize(
    ("uri", "options", "kind", "path"),
    [
        ("s3://bucket/a/b/", {**STORAGE, "s3.region": "r", "s3.attempts.maximum": "2"}, "S3", "bucket/a/b"),
        ("S3A://bucket/a", {**STORAGE, "s3.connection.ssl.enabled": "false"}, "S3", "bucket/a"),
        ("oss://bucket/a", OSS, "S3", "bucket/a"),
        ("gs://bucket/a", GCS, "GCS", "bucket/a"),
        ("abfss://box@acct.dfs.core.windows.net/a/b", {AZURE_KEY: "a2V5"}, "Azure", "box/a/b"),
        ("abfs://box@acct.dfs.core.windows.net/", {AZURE_TOKEN: "sv=1"}, "Azure", "box"),
    ],
)
def test_each_storage_is_opened_with_the_options_of_its_own(
    uri: str, options: dict[str, str], kind: str, path: str
) -> None:
    io, root = file_io.file_io_for(uri, options)
    assert isinstance(io, ObjectIO) and root == path
    assert kind in type(clients_of(io.address).pair.once).__name__
    assert "hunter2" not in f"{io!r} {clients_of(io.address)!r}" and "a2V5" not in repr(io)
    sent = pickle.loads(pickle.dumps(io))
    assert (sent.address, sent.root) == (io.address, root)


@pytest.mark.parametrize(
    ("options", "config", "client"),
    [
        (
            {**STORAGE, "s3.path.style.access": "true", "s3.session.token": "t", "s3.region": "r"},
            {
                "endpoint": "http://here:9000",
                "access_key_id": "AKIA1234",
                "secret_access_key": "hunter2",
                "session_token": "t",
                "region": "r",
            },
            {"allow_http": "true"},
        ),
        (
            STORAGE,
            {"endpoint": "http://bucket.here:9000", "virtual_hosted_style_request": "true"},
            {"allow_http": "true"},
        ),
        ({"s3.endpoint": "http://10.0.0.7:9000/"}, {"endpoint": "http://10.0.0.7:9000"}, {"allow_http": "true"}),
        ({"s3.endpoint": "here"}, {"endpoint": "https://bucket.here"}, {"allow_http": "false"}),
        (
            {"s3.endpoint": "here", "s3.connection.ssl.enabled": "false"},
            {"endpoint": "http://bucket.here"},
            {"allow_http": "true"},
        ),
        ({"s3.connection.establish.timeout": "7 s"}, {}, {"connect_timeout": "7s"}),
    ],
)
def test_the_options_of_s3_reach_the_client(
    options: dict[str, str], config: dict[str, object], client: dict[str, object]
) -> None:
    io, _ = file_io.file_io_for("s3://bucket/t", options)
    assert isinstance(io, ObjectIO)
    made = clients_of(io.address).pair.patient
    assert {k: made.config.get(k) for k in config} == config
    assert {k: made.client_options.get(k) for k in client} == client


def test_the_number_of_attempts_is_that_of_the_client_that_repeats() -> None:
    io, _ = file_io.file_io_for("s3://bucket/t", {"s3.attempts.maximum": "3"})
    assert isinstance(io, ObjectIO)
    clients = clients_of(io.address).pair
    assert (clients.patient.retry_config["max_retries"], clients.once.retry_config["max_retries"]) == (2, 0)


@pytest.mark.parametrize(
    ("uri", "options", "says"),
    [
        ("s3://", {}, "names no bucket"),
        ("s3:///a", {}, "names no bucket"),
        ("oss://bucket/a", {}, "'fs.oss.endpoint'"),
        ("abfss://box@acct.dfs.core.windows.net/a", {AZURE_KEY: "no base64!"}, "cannot be opened"),
    ],
)
def test_a_bucket_that_cannot_be_opened_is_refused(uri: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says) as caught:
        file_io.file_io_for(uri, options)
    assert "base64!" not in caught.value.message and "\n" not in caught.value.message


def test_without_obstore_local_tables_work_and_others_name_the_extra(tmp_path: Path) -> None:
    program = f"""if True:
        import sys
        sys.modules["obstore"] = None
        import bucketline as bl
        bl.create_table({str(tmp_path / "t")!r}, "a INT")
        for uri in ("s3://b/t", "gs://b/t", "abfss://c@a.dfs.core.windows.net/t", "oss://b/t"):
            try:
                bl.open_table(uri)
            except bl.OptionError as e:
                print(e)
    """
    said = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=300
    ).stdout
    assert said.count("install bucketline[stores]") == len(said.splitlines()) == 4


def test_without_hdfs_native_tables_on_hdfs_name_the_extra() -> None:
    program = """if True:
        import sys
        sys.modules["hdfs_native"] = None
        import bucketline as bl
        for uri in ("hdfs://cluster/t", "viewfs://cluster/t"):
            try:
                bl.open_table(uri)
            except bl.OptionError as e:
                print(e)
    """
    said = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=300
    ).stdout
    assert said.count("install bucketline[hdfs]") == len(said.splitlines()) == 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"security.kerberos.login.principal": "etl@LAKE"}, "'security.kerberos.login.keytab' is not set"),
        ({"security.kerberos.login.keytab": "/etc/etl.keytab"}, "'security.kerberos.login.principal' is not set"),
        ({"security.kerberos.login.use-ticket-cache": "false"}, "nothing else to log in with"),
    ],
)
def test_a_login_with_kerberos_that_cannot_work_is_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        check_storage_options(given)


@pytest.mark.parametrize(
    ("key", "remedy"),
    [
        ("hadoop.security.authentication", "write 'hadoop.hadoop.security.authentication'.* or remove it"),
        ("hadoop.dfs.replication", "'dfs.replication', only settings .*; remove it"),
    ],
)
def test_a_setting_of_hadoop_without_effect_is_refused_unless_a_server_sends_it(key: str, remedy: str) -> None:
    sent = {key: "2", "hadoop.dfs.nameservices": "lake", "hadoop.hadoop.security.authentication": "simple"}
    with pytest.raises(OptionError, match=f"'{key}' has no effect: .*{remedy}"):
        hdfs_settings(check_storage_options(sent))
    names = [name for name, _ in hdfs_settings(known_storage_options(sent)).hadoop]
    assert names == ["dfs.nameservices", "hadoop.security.authentication"]


def test_the_page_about_storage_options_names_them_all_with_their_meaning() -> None:
    page = (Path(__file__).parents[3] / "docs/storage.md").read_text()
    assert [
        key for key, option in STORAGE_OPTIONS.items() if f"| `{key}` |" not in page or option.doc not in page
    ] == []
