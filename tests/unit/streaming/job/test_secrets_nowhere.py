"""No secret in any output: each option that Kafka, Spark or Paimon call secret is given a value that is looked for."""

import io
import json
import logging
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyarrow import fs

from bucketline.conf.errors import BucketlineError
from bucketline.conf.job import JobConfig
from bucketline.conf.resolve import load_job
from bucketline.conf.secrets import MaskingFilter, secret_values
from bucketline.conf.sources.source_options import source_identity
from bucketline.state.store.storage import plain_io
from bucketline.state.store.table.table import create_table, open_table
from bucketline.streaming.batch.sink import TableSink
from bucketline.streaming.cli.commands import program
from bucketline.streaming.decode.avro.registry import RegistrySchemas
from bucketline.streaming.decode.avro.registry_errors import RegistryError
from bucketline.streaming.job.run import run_job
from tests.support.pages.secret_options import SECRET_OPTIONS
from tests.support.storage.arrow_io import ArrowIO

SECRETS = {key: f"hunter-{number}-x" for number, key in enumerate(SECRET_OPTIONS)}
JAAS = 'org.apache.kafka.PlainLoginModule required username="ada" password="hunter-jaas";'
HOST = "hdfs://namenode"
STORAGE = {"s3.access-key": "hunter-id", "s3.secret-key": "hunter-key", "hadoop.fs.x.password": "hunter-hadoop"}


class _ConnectSession:
    """A Spark session that a job refuses, once it has told its settings."""

    @property
    def sparkContext(self) -> "_ConnectSession":
        return self

    def getConf(self) -> "_ConnectSession":
        return self

    def getAll(self) -> list[tuple[str, str]]:
        return [("spark.remote", "sc://ada:hunter@host"), ("spark.my.password", "hunter")]


def _run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(program, list(arguments))
    return done.exit_code, done.stdout + done.stderr


@pytest.fixture
def job(tmp_path: Path) -> str:
    """A job file in which every secret option of a source is set, and a table that it may make."""
    options = {f"kafka.{key}": secret for key, secret in SECRETS.items()} | {
        "kafka.sasl.jaas.config": JAAS,
        "kafka.bootstrap.servers": "ada:hunter-server@localhost:9092",
        "subscribe": "orders",
        "url": "jdbc:mysql://ada:hunter/url@host/db?password=hunter-query",
    }
    text = {
        "table": str(tmp_path / "shop.db" / "t"),
        "source": {"format": "kafka", "options": options},
        "storage": STORAGE,
        "checkpoint": str(tmp_path / "checkpoint"),
        "create": {"schema": "id BIGINT", "options": {}},
    }
    path = tmp_path / "job.json"
    path.write_text(json.dumps(text))
    return str(path)


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_print_config_shows_every_setting_and_no_secret(job: str, form: str) -> None:
    code, output = _run("ingest", "--conf-file", job, "--print-config", "--format", form)
    assert code == 0 and "hunter" not in output
    assert all(key in output for key in (*SECRET_OPTIONS, *STORAGE))


@pytest.mark.parametrize("debug", [(), ("--debug",)])
@pytest.mark.parametrize(
    "wrong",
    [
        ("--set", "trigger=soon"),
        ("--set", "source.format=csv", "--set", "source.decode=json"),
        ("--set", "create.schema=id hunter-key"),
        ("--set", "s3.secret-key=hunter-0-x"),
        ("--set", "options.s3.secret-key=hunter-0-x"),
        ("--set", "create.options.fs.azure.account.key.box=hunter-0-x"),
        ("--set", "storage.s3.sekret-key=hunter-0-x"),
        ("--set", "storage.s3.attempts.maximum=hunter-0-x", "--set", "storage.s3.path.style.access=hunter-jaas"),
        ("--set", "source.options.kafka.ssl.key.password:hunter-0-x"),
        ("--set", "password"),
        ("s3.secret-key=hunter-0-x",),
        ("--storage", "s3.secret-key=hunter-0-x"),
    ],
)
def test_no_message_about_a_wrong_setting_shows_a_secret(
    job: str, wrong: tuple[str, ...], debug: tuple[str, ...]
) -> None:
    code, output = _run(*debug, "ingest", "--conf-file", job, "--print-config", *wrong)
    assert code in (2, 3) and "error [" in output and "hunter" not in output


def test_a_broken_job_file_is_named_and_not_shown(tmp_path: Path) -> None:
    for number, text in enumerate(
        ("source:\n  options: {sasl.jaas.config: 'hunter", "a: b: hunter", "source: {options: [[hunter]]}", "hunter")
    ):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        code, output = _run("--debug", "ingest", "--conf-file", str(path))
        assert code == 3 and "hunter" not in output, output


def test_what_a_job_logs_and_how_its_values_print_show_no_secret(job: str) -> None:
    listens = socket.create_server(("127.0.0.1", 0))
    servers = f"ada:hunter-server@127.0.0.1:{listens.getsockname()[1]}"
    config: JobConfig = load_job(job, [f"source.options.kafka.bootstrap.servers={servers}"])
    stream, logger = io.StringIO(), logging.getLogger("bucketline")
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    before, logger.level = logger.level, logging.DEBUG
    try:
        with listens, pytest.raises(BucketlineError) as caught:
            run_job(config, _ConnectSession())
    finally:
        logger.removeHandler(handler)
        logger.level = before
    sink = TableSink(config.table, {"commit.callback.a.password": "hunter-0-x"}, storage_options=config.storage)
    shown = f"{stream.getvalue()} {config!r} {config.source!r} {sink!r} {caught.value!r} {caught.value.fields}"
    assert "hunter" not in shown
    assert source_identity(load_job(job).source) == "kafka://***@localhost:9092"


REGISTRY_LOGINS = ({"username": "ada", "password": "hunter-password"}, {"token": "hunter-token"})


@pytest.fixture(params=REGISTRY_LOGINS, ids=["password", "token"])
def avro_job(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A job file in which every secret of a schema registry is set."""
    registry = {
        "url": "http://ada:hunter-url@127.0.0.1:9",
        "ssl.certificate.location": "client.pem",
        "ssl.key.location": "key.pem",
        "ssl.key.password": "hunter-key",
        "proxy": "http://ada:hunter-proxy@127.0.0.1:9",
        **request.param,
    }
    options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
    text = {
        "table": str(tmp_path / "shop.db" / "t"),
        "source": {"format": "kafka", "options": options, "decode": "avro", "registry": registry},
        "checkpoint": str(tmp_path / "checkpoint"),
        "create": {"schema": "id BIGINT", "options": {}},
    }
    path = tmp_path / "job.json"
    path.write_text(json.dumps(text))
    return str(path)


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_print_config_shows_the_options_of_a_registry_and_no_secret(avro_job: str, form: str) -> None:
    code, output = _run("ingest", "--conf-file", avro_job, "--print-config", "--format", form)
    assert code == 0 and "hunter" not in output
    assert all(f"source.registry.{key}" in output for key in ("url", "proxy", "ssl.key.password"))


@pytest.mark.parametrize(
    "wrong",
    [
        "source.registry.url=ftp://ada:hunter-url@127.0.0.1",
        "source.registry.pasword=hunter-password",
        "source.registry.token=hunter-token",
        "source.registry.password=",
        "source.decode=json",
        "types.id=hunter-key",
    ],
)
def test_no_message_about_a_wrong_option_of_a_registry_shows_a_secret(avro_job: str, wrong: str) -> None:
    with_both = ("--set", "source.registry.username=ada") if "token" in wrong else ()
    code, output = _run("--debug", "ingest", "--conf-file", avro_job, "--print-config", "--set", wrong, *with_both)
    assert code in (0, 2, 3) and "hunter" not in output


def test_values_and_errors_of_a_registry_show_no_secret(avro_job: str) -> None:
    config = load_job(avro_job)
    assert config.registry is not None
    without_files = replace(config.registry, certificate=None, key=None, retries=0, timeout_ms=500)
    schemas = RegistrySchemas(without_files, "a job")
    with pytest.raises(RegistryError) as caught:
        schemas.schema(1)
    schemas.forget()
    shown = f"{config!r} {config.registry!r} {schemas!r} {caught.value!r} {caught.value} {caught.value.fields}"
    assert "hunter" not in shown and "127.0.0.1:9" in caught.value.message


def test_a_handler_hides_secrets_that_other_libraries_log_with_their_tracebacks() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(MaskingFilter(secret_values({"kafka.sasl.jaas.config": JAAS})))
    log = logging.Logger("other")
    log.addHandler(handler)
    try:
        raise ValueError(f"no login with {JAAS}")
    except ValueError:
        log.exception("login %s failed", "hunter-jaas")
    assert "login *** failed" in stream.getvalue() and "Traceback" in stream.getvalue()
    assert "hunter" not in stream.getvalue()


@pytest.mark.parametrize("key", SECRET_OPTIONS)
def test_a_table_neither_takes_nor_shows_a_secret(key: str, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    code, output = _run("--debug", "create", "--table", path, "--schema", "id INT", "-o", f"{key}=hunter")
    assert code == 3 and "hunter" not in output and not Path(path).exists()
    create_table(path, "id INT")
    schema = Path(path, "schema/schema-0")
    schema.write_text(json.dumps(json.loads(schema.read_text()) | {"options": {key: "hunter"}}))
    for arguments in (
        ("schema", path, "--options"),
        ("--debug", "schema", path, "-o", f"{key}=hunter"),
        ("status", path),
    ):
        assert "hunter" not in _run(*arguments)[1]
    assert "hunter" not in repr(open_table(path))


PATH_COMMANDS = (
    ("scan",),
    ("snapshots",),
    ("files",),
    ("schema",),
    ("status",),
    ("compact",),
    ("rescale", "--bucket-num", "2"),
    ("expire",),
    ("orphans",),
    ("doctor",),
    ("offsets",),
    ("delete", "--where", "id > 5"),
    ("plan", "--dry-run"),
    ("rollback", "1"),
)


@pytest.mark.parametrize("command", PATH_COMMANDS, ids=lambda c: c[0])
def test_every_command_with_a_path_takes_storage_options_and_shows_none(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Mapping[str, str]] = []

    def opened(uri: str, storage: Mapping[str, str], *world: object) -> tuple[ArrowIO, str]:
        asked.append(dict(storage))
        files = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
        return ArrowIO(files, put_if_absent=lambda path, data: True), uri.removeprefix(HOST).strip("/")

    create_table(str(tmp_path / "t"), "id INT NOT NULL", ("id",), options={"bucket": "1"})
    monkeypatch.setattr(plain_io, "hdfs_io_for", opened)
    file = tmp_path / "storage.yaml"
    file.write_text("s3: {access-key: hunter-id, secret-key: hunter-old}\nhadoop.fs.x.password: hunter-hadoop\n")
    name, *others = command
    given = ("--storage", "s3.secret-key=hunter-key", "--storage-file", str(file))
    code, output = _run("--debug", name, f"{HOST}/t", *others, *given)
    # The table has no snapshot.
    assert code == {"offsets": 1, "rollback": 1}.get(name, 0), output
    assert asked and all(found == STORAGE for found in asked)
    assert "hunter" not in output
    code, output = _run("--debug", name, f"{HOST}/t", *others, "--storage", "s3.sekret-key=hunter")
    assert code == 3 and "unknown storage option 's3.sekret-key'; did you mean 's3.secret-key'?" in output
    assert "hunter" not in output


def test_every_command_with_a_path_is_tried() -> None:
    takes_path = {n for n, c in program.all_commands().items() if any(p.name == "path" for p in c.params)}
    assert takes_path - {"create", "bad-records"} == {c[0] for c in PATH_COMMANDS}
    assert all(
        {"--storage", "--storage-file"} <= {o for p in program.all_commands()[name].params for o in p.opts}
        for name in takes_path
    )
