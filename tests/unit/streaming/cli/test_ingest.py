"""`ingest` and `job-file` as far as they go without Spark: settings, refusals, the script for spark-submit."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bucketline.state.store.table.table import create_table
from bucketline.streaming.cli.commands import program

JOB = """
table: {root}/shop.db/orders
source:
  format: kafka
  options: {{kafka.bootstrap.servers: "localhost:9092", subscribe: orders, kafka.sasl.jaas.config: hush}}
  decode: json
checkpoint: {root}/checkpoint
create: {{schema: "id BIGINT, v STRING", primary-key: [id], options: {{bucket: "4"}}}}
options: {{compaction: none}}
"""


LOGIN = [
    "source.options.kafka.security.protocol=SASL_PLAINTEXT",
    "source.options.kafka.sasl.mechanism=PLAIN",
    "source.options.kafka.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="u" password="hush";',
]


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format(root=tmp_path))
    return str(path)


def _ingest(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["ingest", *arguments])


def test_print_config_tells_each_setting_and_where_it_comes_from(job: str) -> None:
    found = _ingest("--conf-file", job, "--set", "options.compaction=inline", "--print-config", "--format", "json")
    assert found.exit_code == 0, found.stderr
    rows = {row["key"]: row for row in map(json.loads, found.stdout.splitlines())}
    assert rows["source.format"] == {"key": "source.format", "value": "kafka", "origin": job}
    assert rows["options.compaction"]["origin"] == "command line"
    assert rows["create.options.bucket"] == {"key": "create.options.bucket", "value": "4", "origin": job}
    assert "options.bucket" not in rows
    assert rows["source.options.maxOffsetsPerTrigger"]["origin"] == "default"
    assert rows["bad-records.max"]["value"] == "0" and "options.bad-records.max" not in rows
    assert rows["options.num-sorted-run.compaction-trigger"]["origin"] == "default"
    assert "hush" not in found.stdout
    are_defaults = [row["origin"].startswith("default") for row in rows.values()]
    assert are_defaults == sorted(are_defaults)


@pytest.mark.parametrize(
    ("settings", "value", "origin"),
    [
        (
            [],
            "auto",
            "default; Spark reads: kafka.sasl.jaas.config is set, but security.protocol is not one with a login",
        ),
        (["source.reader=spark"], "spark", "command line"),
        (
            [*LOGIN, "source.reader=native"],
            "native",
            "command line; tasks read, if they and the driver have confluent-kafka",
        ),
        (LOGIN, "auto", "default; tasks read, if they and the driver have confluent-kafka"),
    ],
)
def test_print_config_says_who_reads_kafka_and_why(job: str, settings: list[str], value: str, origin: str) -> None:
    assert _reader(job, *settings) == {"key": "source.reader", "value": value, "origin": origin}


@pytest.mark.parametrize(
    ("settings", "who"),
    [
        (["source.format=json"], "Spark reads: the source is 'json', and tasks can read only Kafka and Parquet"),
        (
            ["source.format=parquet"],
            "tasks read each file that gives the same rows as Spark; Spark reads the other files",
        ),
        (["source.format=parquet", "source.options.path=hdfs://n/in"], "Spark reads: tasks can read only local files"),
        (["source.format=parquet", "source.options.mergeSchema=true"], "Spark reads: source.options.mergeSchema says"),
    ],
)
def test_print_config_says_who_reads_files_and_why(tmp_path: Path, settings: list[str], who: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        f"table: {tmp_path}/shop.db/t\nsource: {{options: {{path: {tmp_path}/in}}}}\ncheckpoint: {tmp_path}/c\n"
        "create: {schema: id BIGINT}\n"
    )
    assert _reader(str(path), *settings)["origin"].startswith(f"default; {who}")


def _reader(job: str, *settings: str) -> dict[str, str]:
    changed = [part for setting in settings for part in ("--set", setting)]
    found = _ingest("--conf-file", job, "--print-config", "--format", "json", *changed)
    assert found.exit_code == 0, found.stderr
    (row,) = (row for row in map(json.loads, found.stdout.splitlines()) if row["key"] == "source.reader")
    return dict(row)


def test_print_config_prints_the_same_with_and_without_the_table(job: str, tmp_path: Path) -> None:
    before = _ingest("--conf-file", job, "--print-config", "--format", "json")
    create_table(str(tmp_path / "shop.db/orders"), "id BIGINT NOT NULL, v STRING", ["id"], options={"bucket": "2"})
    after = _ingest("--conf-file", job, "--print-config", "--format", "json")
    assert before.exit_code == 0 and (after.stdout, after.stderr) == (before.stdout, before.stderr)
    keys = [json.loads(line)["key"] for line in after.stdout.splitlines()]
    assert len(set(keys)) == len(keys)
    assert "the table was not read" in after.stderr


WATCHED = """
import sys

touched = []
EVENTS = ("open", "os.listdir", "os.scandir", "os.mkdir", "os.rename", "os.remove", "os.link", "os.exec")
EVENTS += ("socket.connect", "socket.bind", "socket.getaddrinfo", "sqlite3.connect", "subprocess.Popen")


def watch(event, arguments):
    if event in EVENTS and (event != "open" or not str(arguments[0]).endswith((".py", ".pyc", ".so"))):
        touched.append((event, str(arguments[0])))


from bucketline.streaming.cli.commands import program
from bucketline.streaming.cli import settings, spark_side

sys.addaudithook(watch)
try:
    program.main(["ingest", "--conf-file", sys.argv[1], "--print-config", "--format", "json"])
finally:
    own = (sys.prefix, sys.base_prefix, "/usr/lib/", "/usr/share/", "/etc/localtime")
    print([t for t in touched if not t[1].startswith(own)], file=sys.stderr)
"""


@pytest.mark.parametrize("place", ["file", "s3", "hdfs", "jdbc", "rest", "no-create"])
def test_print_config_touches_nothing_but_the_job_file(tmp_path: Path, place: str) -> None:
    """A server counts who connects; the program's own files and sockets are watched by Python."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        table, more = {
            "file": (f"{tmp_path}/shop.db/t", ""),
            "s3": ("s3://lake/shop.db/t", f"storage: {{s3.endpoint: 'http://127.0.0.1:{port}'}}\n"),
            "hdfs": (f"hdfs://127.0.0.1:{port}/shop.db/t", ""),
            "jdbc": (
                "shop.t",
                f"catalog: {{metastore: jdbc, uri: 'jdbc:sqlite:{tmp_path}/c.db', warehouse: {tmp_path}}}\n",
            ),
            "rest": (
                "shop.t",
                f"catalog: {{metastore: rest, uri: 'http://127.0.0.1:{port}', warehouse: w, token: x}}\n",
            ),
            "no-create": (f"{tmp_path}/shop.db/t", ""),
        }[place]
        path = tmp_path / "job.yaml"
        path.write_text(
            f"table: {table}\n{more}source: {{format: kafka, decode: json, options: {{subscribe: orders, "
            f"kafka.bootstrap.servers: '127.0.0.1:{port}'}}}}\ncheckpoint: {tmp_path}/checkpoint\n"
            f"options: {{metrics.json.file: {tmp_path}/lines, compaction: none}}\n"
            f"bad-records: {{path: {tmp_path}/rejects, max: 3}}\n"
            + (
                ""
                if place == "no-create"
                else "create: {schema: id BIGINT, primary-key: [id], options: {bucket: '4'}}\n"
            )
        )
        done = subprocess.run([sys.executable, "-c", WATCHED, str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout.splitlines()[0])["origin"] == str(path)
        assert done.stderr.splitlines()[-1] == str([("open", str(path))])
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()
    assert [p.name for p in tmp_path.iterdir()] == ["job.yaml"]


@pytest.mark.parametrize(
    ("settings", "code", "says"),
    [
        (["source.options.subscribe=", "source.options.assign=x"], "OPTION", "needs exactly one of"),
        (["source.format=csv"], "OPTION", "source.decode"),
        (["bad-records.max=5"], "OPTION", "bad-records.path, the folder that stores them, is not set"),
        (["options.merge-memory=1 kb"], "OPTION", "must be at least 1 mb"),
        (["options.async-compaction.tasks=2"], "OPTION", "has an effect only with 'compaction' = 'async'"),
        (["options.bad-records.max=5"], "OPTION", "must be written 'bad-records.max' in a job"),
        (["create.schema=id BIGNIT"], "OPTION", "column 'id'"),
        (["create.primary-key=x"], "OPTION", "should include all primary key fields"),
        (["create.options.lock.enabled=true"], "OPTION", "no catalog lock is taken"),
        (
            ["source.decode=debezium-json", "create.primary-key=", "create.options.bucket=-1"],
            "OPTION",
            "'decode: debezium-json' produces updates",
        ),
        (["table=TMP/shop.db/.."], "OPTION", "'..' is not a valid table name"),
        (["table=ftp://host/shop.db/t"], "OPTION", "there is no storage for the scheme"),
    ],
)
def test_print_config_refuses_what_ingest_refuses(
    job: str, tmp_path: Path, settings: list[str], code: str, says: str
) -> None:
    changed = [part for setting in settings for part in ("--set", setting.replace("TMP", str(tmp_path)))]
    printed = _ingest("--conf-file", job, "--print-config", *changed)
    assert printed.exit_code in (1, 3) and f"error [{code}]" in printed.stderr and says in printed.stderr
    run = _ingest("--conf-file", job, *changed)
    assert (run.exit_code, run.stderr) == (printed.exit_code, printed.stderr)
    assert not (tmp_path / "shop.db").exists()


def test_a_job_without_table_and_create_is_told_that_there_is_none(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"table: {tmp_path}/shop.db/t\nsource: {{format: rate}}\ncheckpoint: {tmp_path}/c\n")
    found = _ingest("--conf-file", str(path))
    assert found.exit_code == 3 and "error [TABLE_NOT_FOUND]: there is no table at" in found.stderr


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("options.merge-memory=1 kb", "must be at least 1 mb"),
        ("options.snapshot.time-retained=5", "has no unit"),
        ("table=ftp://host/t", "there is no storage for the scheme"),
    ],
)
def test_print_config_checks_settings_without_a_section_create(tmp_path: Path, setting: str, says: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"table: {tmp_path}/shop.db/t\nsource: {{format: rate}}\ncheckpoint: {tmp_path}/c\n")
    found = _ingest("--conf-file", str(path), "--print-config", "--set", setting)
    assert found.exit_code == 3 and says in found.stderr


def test_print_config_shows_an_option_of_which_only_the_table_knows_whether_it_may_be(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(f"table: {tmp_path}/shop.db/t\nsource: {{format: rate}}\ncheckpoint: {tmp_path}/c\n")
    found = _ingest("--conf-file", str(path), "--print-config", "--set", "options.bucket=8", "--format", "csv")
    assert found.exit_code == 0 and "options.bucket,8,command line" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "Missing option '--conf-file'"),
        (["--conf-file", "nowhere.yaml"], 3, "cannot read the file"),
        (["--conf-file", "JOB", "--set", "sorce.format=rate"], 3, "did you mean 'source.format'"),
        (["--conf-file", "JOB", "--set", "source.format"], 3, "is not 'key=value'"),
        (["--conf-file", "JOB", "--set", "trigger=soon"], 3, "availableNow"),
        (["--conf-file", "JOB", "--set", "checkpoint=", "--print-config"], 3, "'checkpoint' = '': must not be empty"),
        (["--conf-file", "JOB", "--set", "table= ", "--print-config"], 3, "'table' = '': must not be empty"),
        (["--conf-file", "JOB", "--set", "options.bucket=8", "--print-config"], 3, "create.options.bucket"),
        (["--conf-file", "JOB", "--set", "options.bucket=8", "--print-config"], 3, "cannot be set by a job"),
    ],
)
def test_a_job_that_cannot_be_is_refused_before_spark_starts(
    job: str, arguments: list[str], code: int, says: str
) -> None:
    found = _ingest(*(job if a == "JOB" else a for a in arguments))
    assert (found.exit_code, says in found.stderr) == (code, True), found.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--dry-run", "--unpark", "t"],
            "--dry-run cannot be combined with --unpark: remove one",
        ),
        (["--print-config", "--forget", "t"], "--print-config .* with --forget"),
        (["--unpark", "t", "--forget", "u"], "--unpark .* with --forget"),
        (["--dry-run", "--reset-identity"], "--dry-run .* with --reset-identity"),
        (["--forget", "t", "--allow-reprocess"], "--forget .* with --allow-reprocess"),
    ],
)
def test_what_does_not_run_the_job_is_asked_for_alone(job: str, arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(program, ["ingest", "--conf-file", job, *arguments])
    assert result.exit_code == 2 and re.search(says, result.output), result.output


def test_the_script_for_spark_submit_runs_the_job_file(job: str) -> None:
    script = CliRunner().invoke(program, ["job-file"]).stdout.strip()
    assert sorted(p.name for p in Path(script).parent.glob("*.py")) == ["__init__.py", "bucketline_ingest.py"]
    command = [sys.executable, script, "--conf-file", job, "--print-config", "--format", "csv"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("key,value,origin\n"), done.stderr
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:14]) == (2, "error [USAGE]:")
