"""What is secret: keys, what stands in texts, and errors that carry either."""

import pickle

import pytest

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.conf.resolve import read_settings
from bucketline.conf.secrets import MaskedOptions, is_secret_key, mask, mask_text, secret_values
from bucketline.conf.sink_options import SINK_OPTIONS
from bucketline.conf.table.table_options import KNOWN_KEYS
from tests.support.pages.secret_options import SECRET_OPTIONS

SECRET = "hunter2"


@pytest.mark.parametrize("key", SECRET_OPTIONS)
def test_what_kafka_spark_and_paimon_call_secret_is_secret_here(key: str) -> None:
    assert mask(key, SECRET) == mask(f"source.options.kafka.{key}", SECRET) == "***"


def test_no_option_of_tables_and_sinks_is_taken_for_a_secret() -> None:
    assert [key for key in (*KNOWN_KEYS, *SINK_OPTIONS) if is_secret_key(key)] == []


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{SECRET}@host:80/x",
        f"s3://AKIA:{SECRET}/with/slashes@bucket/key",
        f"redis://:{SECRET}@host",
        f"https://{SECRET}@host/x",
        f"ada:{SECRET}@localhost:9092,ada:{SECRET}@other:9092",
        f"jdbc:mysql://host/db?user=a&password={SECRET}&useSSL=true",
        f"jdbc:oracle:thin:scott/{SECRET}@//host:1521/x",
        f"jdbc:sqlserver://host;user=a;password={SECRET};",
        f"http://host/x?X-Amz-Signature={SECRET}&part=1",
        f"https://host/container?sv=1&sig={SECRET}",
        f"{{'s3.secret-key': '{SECRET}', 'a': 'b'}}",
        f'{{"password":"{SECRET}"}}',
        f'text of JSON: "{{\\"password\\":\\"{SECRET}\\"}}"',
        f'org.apache.kafka.PlainLoginModule required username="a" password="{SECRET}";',
        f"'basic.auth.user.info' = 'user:{SECRET}'",
        f"unexpected extra argument (s3.secret-key={SECRET})",
        f"--storage fs.azure.account.key.box.dfs.core.windows.net={SECRET}==",
    ],
)
def test_a_text_is_shown_without_its_secrets(text: str) -> None:
    shown = mask_text(text)
    assert SECRET not in shown and "***" in shown
    assert mask_text(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "hdfs://namenode:8020/data/a@b",
        "abfss://container@account.dfs.core.windows.net/x",
        "kafka://a:9092,b:9092",
        "file:/tmp/a:b@c",
        "{topic: orders@eu, partition: 3}",
        "/warehouse/shop.db/t/token=abc/bucket-0/data-1.parquet: no such file",
        "unexpected token: SELECT",
        "option 'kafka.ssl.key.password' is required and not set: the password",
        "org.apache.kafka.common.errors.SaslAuthenticationException: no login module",
        "bucket=4, primary-key=id",
    ],
)
def test_what_is_no_secret_is_shown_as_it_is(text: str) -> None:
    assert mask_text(text) == text


def test_secrets_that_are_known_are_hidden_however_they_are_written() -> None:
    known = secret_values(
        {
            "sasl.jaas.config": 'X required username="ada" password="hunter2";',
            "ssl.keystore.key": "-----BEGIN-----\nhunter3xyz\n-----END-----",
            "jdbc": "jdbc:mysql://root:hunter4@host",
            "ssl.truststore.password": "yes",
            "table": "/tmp/t",
        }
    )
    assert mask_text("hunter2 then hunter3xyz then hunter4 yes /tmp/t", known) == "*** then *** then *** yes /tmp/t"


def test_an_error_shows_no_secret_in_its_message_or_fields() -> None:
    error = OptionError(
        f"option 's3.secret-key' = '{SECRET}': no",
        key="s3.secret-key",
        value=SECRET,
        path=f"s3://a:{SECRET}@b/c",
        options={"s3.secret-key": SECRET, "bucket": "1"},
    )
    for shown in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(shown, BucketlineError)
        assert SECRET not in f"{shown} {shown!r} {shown.message} {shown.fields} {shown.args}"
        assert shown.fields["options"] == {"s3.secret-key": "***", "bucket": "1"}
        assert shown.fields["path"] == "s3://***@b/c"


def test_a_path_in_an_error_is_left_as_it_is() -> None:
    error = OptionError("no", path="/w/token=abc/f.parquet", key="path", value="x")
    assert error.fields == {"path": "/w/token=abc/f.parquet", "key": "path", "value": "x"}


def test_options_print_without_their_secrets_and_are_a_mapping_like_any_other() -> None:
    options = MaskedOptions({"s3.secret-key": SECRET, "s3.endpoint": "http://h"})
    assert repr(options) == str(options) == "{'s3.secret-key': '***', 's3.endpoint': 'http://h'}"
    assert pickle.loads(pickle.dumps(options)) == {"s3.secret-key": SECRET, "s3.endpoint": "http://h"}


def test_a_job_file_that_is_no_yaml_is_named_by_line_and_not_shown() -> None:
    with pytest.raises(OptionError, match=r"job\.yaml, line \d+ is no valid YAML") as caught:
        read_settings(f'source:\n  options: {{kafka.ssl.key.password: "{SECRET}', name="job.yaml")
    assert SECRET not in caught.value.message
