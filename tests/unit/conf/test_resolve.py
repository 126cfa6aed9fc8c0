"""Job files, command-line overrides, and what counts in the end."""

from importlib import resources
from pathlib import Path

import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.job import Create, JobConfig, RecordFormat, Setting, Trigger
from bucketline.conf.job_file.properties_file import parse_properties
from bucketline.conf.resolve import (
    effective_options,
    load_job,
    read_assignments,
    read_settings,
    resolve_job,
    show_settings,
)
from bucketline.conf.secrets import mask
from bucketline.conf.sink_options import SINK_OPTIONS, sink_options, split_options
from bucketline.conf.spark_options import ADVISED, check_spark_settings
from bucketline.conf.table.own_options import Compaction
from bucketline.conf.table.table_options import HONOURED

YAML = """
table: file:/t
source:
  format: kafka
  options: {kafka.bootstrap.servers: "localhost:9092", subscribe: [a, b], startingTimestamp: 2026-01-01}
  decode: debezium-json
checkpoint: file:/c
trigger: 30 seconds
create:
  schema: id BIGINT NOT NULL, d DECIMAL(12,2)
  primary-key: [id]
  partition-by: [dt]
  options: {bucket: "4", write-only: true}
options: {compaction: inline}
bad-records: {path: file:/r, max: 7}
"""
PROPERTIES = """
# the same
table=file:/t
source.format: kafka
source.options.kafka.bootstrap.servers = localhost:9092
source.options.subscribe=a,b
source.options.startingTimestamp 2026-01-01
source.decode=debezium-json
checkpoint=file:/c
trigger=30 seconds
create.schema=id BIGINT NOT NULL, \\
    d DECIMAL(12,2)
create.primary-key=id
create.partition-by=dt
create.options.bucket=4
create.options.write-only=true
options.compaction=inline
bad-records.path=file:/r
bad-records.max=7
"""


def job(text: str = YAML, *assignments: str, name: str = "job.yaml") -> JobConfig:
    return resolve_job(read_settings(text, name=name), read_assignments(assignments))


def test_a_yaml_job_file_is_read_as_written() -> None:
    found = job()
    assert (found.table, found.checkpoint, found.trigger) == ("file:/t", "file:/c", Trigger(30_000))
    assert found.source.format == "kafka" and found.source.decode is RecordFormat.DEBEZIUM_JSON
    assert found.source.options == {
        "kafka.bootstrap.servers": "localhost:9092",
        "subscribe": "a,b",
        "startingTimestamp": "2026-01-01",
    }
    assert found.create == Create(
        "id BIGINT NOT NULL, d DECIMAL(12,2)", ("id",), ("dt",), {"bucket": "4", "write-only": "true"}, None
    )
    assert found.options == {"compaction": "inline"}
    assert (found.bad_records.path, found.bad_records.max_count) == ("file:/r", 7)


def test_a_properties_file_says_the_same() -> None:
    yaml = {key: found.text for key, found in job().settings.items()}
    assert {key: found.text for key, found in job(PROPERTIES, name="job.properties").settings.items()} == yaml


def test_the_command_line_wins_over_the_file() -> None:
    found = job(YAML, "trigger=availableNow", "options.write-buffer-size=1 mb", "source.options.subscribe=x=y")
    assert found.trigger == Trigger(None)
    assert found.options["write-buffer-size"] == "1 mb"
    assert found.source.options["subscribe"] == "x=y"
    assert found.settings["trigger"].origin == "command line"
    assert found.settings["table"].origin == "job.yaml"


@pytest.mark.parametrize(
    ("assignment", "text"),
    [
        ("tabel=x", "unknown key 'tabel' in command line; did you mean 'table'?"),
        ("zzzzzz=x", "unknown key 'zzzzzz' in command line; the nearest known one is '"),
        ("options.zzzzzz=x", "unknown option 'zzzzzz' in command line; the nearest known one is '"),
        ("options.compactoin=x", "unknown option 'compactoin' in command line; did you mean 'compaction'?"),
        ("create.options.bukcet=4", "did you mean 'bucket'?"),
        ("create.options.run-size=8 mb", "unknown option 'run-size'"),
        ("source.decoder=json", "did you mean 'source.decode'?"),
        ("compaction=inline", "did you mean 'options.compaction'?"),
        ("subscribe=x", "did you mean 'source.options.subscribe'?"),
        ("s3.endpoint=x", "did you mean 'storage.s3.endpoint'?"),
        ("bucket=4", "did you mean 'create.options.bucket'?"),
        ("source.optoins.subscrib=x", "did you mean 'source.options.subscribe'?"),
        ("source.option.my.own=x", "did you mean 'source.options.my.own'?"),
        ("opitons.compactoin=inline", "did you mean 'options.compaction'?"),
        ("create.option.bukcet=4", "did you mean 'create.options.bucket'?"),
        ("storge.s3.region=x", "did you mean 'storage.s3.region'?"),
        ("creat.primary-key=id", "did you mean 'create.primary-key'?"),
        ("bad-record.path=x", "did you mean 'bad-records.path'?"),
        ("source.options.=x", "unknown key 'source.options.'"),
        (
            "source=kafka",
            "'source' in command line is a section, and has no value of its own: write its settings below",
        ),
        ("source.options=x", "below it, as 'source.options.kafka.bootstrap.servers'"),
        ("options=compaction", "'options' in command line is a section"),
        ("bad-records=x", "below it, as 'bad-records.max'"),
        ("types=x", "below it, as 'types.COLUMN'"),
        (
            "checkpoint=${evn:HOME}/x",
            "'checkpoint' contains '${evn:HOME}', which stands for nothing; write ${env:NAME}",
        ),
        ("table=/w/${WAREHOUSE}/t", "'table' contains '${WAREHOUSE}', which stands for nothing"),
        ("bad-records.path=${env:X", "'bad-records.path' contains '${env:X'"),
        (
            "source.decode=protobuf",
            "must be one of json, debezium-json, debezium-flat-json, avro, debezium-avro, canal-json, maxwell-json, "
            "none",
        ),
        ("trigger=often", "must be 'availableNow' or an interval"),
        ("bad-records.max=-1", "must not be negative"),
        ("oops", "is not 'key=value'"),
    ],
)
def test_a_wrong_setting_is_named_with_its_remedy(assignment: str, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        job(YAML, assignment)
    assert text in caught.value.message


def test_columns_of_a_new_table_may_be_left_out_where_records_declare_them() -> None:
    settings = read_settings(YAML, name="job.yaml")
    del settings["create.schema"]
    created = resolve_job(settings).create
    assert created is not None and created.schema is None and created.primary_key == ("id",)
    for decode in ("none", "maxwell-json"):
        with pytest.raises(
            OptionError, match=f"'create.schema' is required .* with 'source.decode' = '{decode}' the records"
        ):
            resolve_job({**settings, "source.decode": Setting(decode, "command line")})


def test_create_auto_takes_columns_and_key_from_the_records() -> None:
    short = YAML[: YAML.index("create:")] + "create: auto\n"
    created = resolve_job(read_settings(short, name="job.yaml")).create
    assert created is not None and (created.schema, created.primary_key, created.options) == (None, (), {})
    for assignment, why in (
        ("create=often", "'auto', or a section"),
        ("create.schema=id INT", "the records declare the columns"),
    ):
        with pytest.raises(OptionError, match=why):
            resolve_job(read_settings(short, name="job.yaml"), read_assignments([assignment]))


@pytest.mark.parametrize("missing", ["table", "source.format", "checkpoint"])
def test_a_missing_required_key_is_named(missing: str) -> None:
    settings = read_settings(YAML, name="job.yaml")
    del settings[missing]
    with pytest.raises(OptionError, match=f"'{missing}' is required"):
        resolve_job(settings)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("table: a\ntable: b", "'table' is set twice"),
        ("a: [", "is no valid YAML"),
        ("- a", "must have keys"),
        ("create: {primary-key: [[a]]}", "must be a list of strings"),
        ("? [a]\n: b", "a key must be a string"),
        ("table: [a, b]", "'table' in job.yaml names one place, so it cannot be a list"),
        ("checkpoint: [/c]", "'checkpoint' in job.yaml names one place"),
        ("tables: []", "'tables' in job.yaml is empty: write a list of routes, as in `tables: [{"),
        ("tables:\ntable: t", "'tables' in job.yaml is empty"),
        ("tables: {}", "'tables' in job.yaml is empty"),
    ],
)
def test_a_job_file_that_is_not_one_is_refused(text: str, expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_settings(text, name="job.yaml")
    assert expected in caught.value.message


def test_an_empty_value_in_yaml_is_as_good_as_none() -> None:
    assert read_settings("create:\ntable: t", name="j.yaml") == {"table": Setting("t", "j.yaml")}
    assert read_settings("", name="j.yaml") == {}


def test_job_files_are_found_on_disk_or_named_when_missing(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(YAML)
    assert load_job(str(path), ["table=file:/u"]).table == "file:/u"
    with pytest.raises(OptionError, match="cannot read the file"):
        load_job(str(tmp_path / "none.yaml"))


def test_job_options_win_over_the_table_which_wins_over_defaults() -> None:
    found = effective_options(
        job(YAML, "options.num-levels=4", "options.bucket=2").settings,
        {"bucket": "2", "num-levels": "3", "write-only": "true", "unheard-of": "1"},
    )
    assert found["num-levels"] == Setting("4", "command line")
    assert found["write-only"] == Setting("true", "table")
    assert found["unheard-of"] == Setting("1", "table")
    assert found["compaction"] == Setting("inline", "job.yaml")
    assert found["target-file-row-num"].origin == found["merge-memory"].origin == "default"
    assert list(found) == sorted(found)


def test_every_default_is_shown_in_words_that_can_be_set() -> None:
    found = effective_options({}, {})
    assert found["snapshot.num-retained.max"].text == found["commit.timeout"].text == "unlimited"
    assert found["target-file-row-num"].text == "unlimited"
    assert (found["merge-memory"].text, found["snapshot.time-retained"].text) == ("256 mb", "1 h")
    assert (found["commit.min-retry-wait"].text, found["commit.max-retry-wait"].text) == ("10 ms", "10 s")
    for option in (*SINK_OPTIONS.values(), *HONOURED.values()):
        if option.default is not None:
            assert option.parse(found[option.key].text) == option.default, option.key


def test_a_job_says_who_reads_its_source_in_one_place() -> None:
    with pytest.raises(
        OptionError, match=r"options.frame-reader.*is for a TableSink; in a job, set 'source.reader' instead"
    ):
        job(YAML, "options.frame-reader=spark")


def test_a_job_cannot_choose_what_the_table_decides() -> None:
    with pytest.raises(OptionError, match="the table has '2'"):
        effective_options(job(YAML, "options.bucket=4").settings, {"bucket": "2"})
    with pytest.raises(OptionError, match="the table has none"):
        effective_options(job(YAML, "options.rowkind.field=k").settings, {"bucket": "2"})


@pytest.mark.parametrize(
    "key",
    [
        "source.options.kafka.sasl.jaas.config",
        "source.options.kafka.ssl.truststore.location",
        "fs.s3a.secret.key",
        "fs.s3a.access.key",
        "API_TOKEN",
        "db.Password",
    ],
)
def test_secrets_are_masked(key: str) -> None:
    assert mask(key, "hunter2") == "***"


def test_what_is_no_secret_is_shown_except_users_in_uris() -> None:
    assert mask("table", "file:/t") == "file:/t"
    assert mask("table", "s3://me:pw@host/t") == "s3://***@host/t"
    shown = show_settings(job(YAML, "source.options.kafka.sasl.jaas.config=pw").settings)
    assert ("source.options.kafka.sasl.jaas.config", "***", "command line") in shown
    assert not any("pw" in value for _, value, _ in shown)


def test_properties_follow_javas_syntax() -> None:
    text = "a=1\n b : 2\n! no\n# no\nc 3 4\nd\\=e=f\\:g\nh=i\\\n   j\nk=\\u00e9\\n.\nl\nm=a\\\\\nn=o\\"
    assert parse_properties(text) == [
        ("a", "1"),
        ("b", "2"),
        ("c", "3 4"),
        ("d=e", "f:g"),
        ("h", "ij"),
        ("k", "é\n."),
        ("l", ""),
        ("m", "a\\"),
        ("n", "o"),
    ]


def test_the_template_of_a_job_file_is_a_job_file() -> None:
    text = (resources.files("bucketline.conf") / "templates" / "job.yaml").read_text()
    assert job(text).source.format == "kafka"


def test_the_template_of_spark_settings_holds_what_is_advised() -> None:
    text = (resources.files("bucketline.conf") / "templates" / "spark-defaults.conf").read_text()
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    assert {key: value for key, value in lines} == dict(ADVISED)
    assert check_spark_settings(ADVISED) == ()


def test_spark_connect_is_refused_and_unwise_settings_are_named() -> None:
    with pytest.raises(OptionError, match=r"spark\.remote"):
        check_spark_settings({"spark.remote": "sc://h"})
    with pytest.raises(OptionError, match="classic"):
        check_spark_settings({"spark.api.mode": "Connect"})
    (advice,) = check_spark_settings({"spark.speculation": "true"})
    assert "orphans" in advice


def test_sink_options_are_read_checked_and_parted_from_the_tables() -> None:
    found = sink_options({"compaction": "none", "merge-memory": "64 mb", "bucket": "4"})
    assert (found.compaction, found.merge_memory_bytes) == (Compaction.NONE, 64 << 20)
    assert sink_options({}).compaction is Compaction.INLINE
    assert split_options({"compaction": "none", "bucket": "4"}) == ({"compaction": "none"}, {"bucket": "4"})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("async-compaction.tasks", "2"),
        ("compaction", "sometimes"),
        ("write-parallelism", "0"),
        ("merge-memory", "1 kb"),
        ("run-size", "2 gb"),
        ("bad-records.max", "x"),
    ],
)
def test_sink_options_that_cannot_work_are_refused_by_name(key: str, text: str) -> None:
    with pytest.raises(OptionError, match=key):
        sink_options({key: text})
