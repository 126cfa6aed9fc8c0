"""Storage options: which there are, what they mean, and which are refused."""

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

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
from bucketline.state.store.storage import file_io
from bucketline.state.store.storage.objects.object_io import ObjectIO
from bucketline.state.store.storage.objects.object_store import clients_of
from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.batch.sink import TableSink

COLUMNS = "id BIGINT NOT NULL, v BIGINT, pt INT"
STORAGE = {"s3.access-key": "AKIA1234", "s3.secret-key": "hunter2", "s3.endpoint": "http://here:9000"}


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
        ({"s3.region": "a", "fs.s3a.endpoint.region": "b"}, "set twice"),
        ({"s3.attempts.maximum": "0"}, "must be at least 1"),
        ({"fs.gs.auth.type": "magic"}, "must be one of"),
        ({"fs.gs.auth.service.account.json.keyfile": "/k"}, "must be set together"),
        ({"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE"}, "must be set together"),
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
        ({"security.kerberos.login.use-ticket-cache": "false"}, "no way to log in"),
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
