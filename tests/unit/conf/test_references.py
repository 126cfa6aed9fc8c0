"""What references in a job file stand for, where they may stand, and what is masked."""

import pickle
from pathlib import Path

import pytest

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.conf.job_file.references import has_reference, hides, is_reference, looked_up
from bucketline.conf.resolve import load_job, read_settings_file, resolve_job, show_settings
from bucketline.conf.secrets import mask_text

KEY = "source.options.kafka.sasl.jaas.config"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain", "plain"),
        ("${env:A}", "a value"),
        ('x="${env:A}" y="${env:B}";', 'x="a value" y="b";'),
        ("$${env:A}", "${env:A}"),
        ("$${env:A} ${env:B}", "${env:A} b"),
        ("${env:A", "${env:A"),
        ("${spark.x} ${ENV:A} $env:A", "${spark.x} ${ENV:A} $env:A"),
        ("${env:NESTED}", "${env:A}"),
    ],
)
def test_a_text_gets_what_its_references_stand_for(text: str, found: str) -> None:
    variables = {"A": "a value", "B": "b", "NESTED": "${env:A}"}
    assert looked_up(KEY, text, variables) == found


def test_a_file_is_its_text_without_the_last_line_feed_or_one_of_its_keys(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("first\nsecond\n")
    (tmp_path / "a:b").write_bytes(b"with a colon\r\n")
    (tmp_path / "keys.properties").write_text("user = ada\npassword: lovelace\n")
    assert looked_up(KEY, f"${{file:{tmp_path}/plain}}") == "first\nsecond"
    assert looked_up(KEY, f"${{file:{tmp_path}/a:b}}") == "with a colon"
    assert looked_up(KEY, f"<${{file:{tmp_path}/keys.properties:password}}>") == "<lovelace>"


@pytest.mark.parametrize(
    ("key", "text", "says"),
    [
        (KEY, "${env:NOT_THERE}", f"'{KEY}' refers to the environment variable 'NOT_THERE', which is not set"),
        (KEY, "${env:}", "environment variable ''"),
        (KEY, "${file:TMP/gone}", "refers to the file TMP/gone, which cannot be read: No such file"),
        (KEY, "${file:TMP}", "which cannot be read: Is a directory"),
        (KEY, "${file:TMP/bytes}", "which is no valid UTF-8 text"),
        (KEY, "${file:TMP/large}", "larger than 1 MiB"),
        (KEY, "${file:TMP/keys:user}", "refers to the key 'user' in the file TMP/keys, which has no such key"),
        ("create.schema", "${env:HOME}", "'create.schema' is stored with the table"),
        ("create", "${env:HOME}", "is stored with the table"),
        ("create.options.bucket", "${env:HOME}", "is stored with the table"),
        ("tables.0.create.schema", "${env:HOME}", "'tables.0.create.schema' is stored with the table"),
        ("select", "*, '${env:HOME}' AS x", "'select' is shown on Spark's pages"),
        ("expect.a.check", "${env:HOME}", "is shown on Spark's pages"),
    ],
)
def test_what_cannot_be_looked_up_is_refused_by_name(key: str, text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff")
    (tmp_path / "large").write_bytes(b"x" * ((1 << 20) + 1))
    (tmp_path / "keys").write_text("name=x\n")
    with pytest.raises(OptionError) as e:
        looked_up(key, text.replace("TMP", str(tmp_path)), {"HOME": "x"})
    assert says.replace("TMP", str(tmp_path)) in e.value.message and e.value.key == key


def test_what_names_a_place_is_not_hidden_and_all_else_of_a_source_or_a_storage_is() -> None:
    for key in (KEY, "storage.s3.secret-key", "catalog.token", "source.registry.password", "source.options.user"):
        assert hides(key)
    for key in ("table", "checkpoint", "trigger", "source.options.SUBSCRIBE", "source.registry.url", "options.branch"):
        assert not hides(key)
    assert is_reference("${env:A}") and not is_reference("x${env:A}") and not is_reference("$${env:A}")
    assert has_reference("x${env:A}") and not has_reference("$${env:A}")


def test_a_job_shows_references_and_never_what_they_stand_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUCKETLINE_TEST_WORD", "correct-horse")
    monkeypatch.setenv("BUCKETLINE_TEST_TABLE", str(tmp_path / "shop.db" / "t"))
    (tmp_path / "word").write_text("battery-staple\n")
    path = tmp_path / "job.yaml"
    path.write_text(
        "table: ${env:BUCKETLINE_TEST_TABLE}\ncheckpoint: /c\ncreate: {schema: id BIGINT}\n"
        "source: {format: kafka, decode: json, options: {subscribe: t, kafka.bootstrap.servers: 'h:1', "
        "kafka.client.id: '${env:BUCKETLINE_TEST_WORD}', "
        "kafka.sasl.jaas.config: 'M required password=\"${env:BUCKETLINE_TEST_WORD}\";'}}\n"
        f"storage: {{s3.access-key: some-id, s3.secret-key: '${{file:{tmp_path}/word}}'}}\n"
    )
    config = load_job(str(path))
    assert config.table == str(tmp_path / "shop.db" / "t")
    assert config.source.options["kafka.sasl.jaas.config"] == 'M required password="correct-horse";'
    assert config.storage["s3.secret-key"] == "battery-staple"
    shown = {key: text for key, text, _ in show_settings(config.settings)}
    assert shown["storage.s3.secret-key"] == f"${{file:{tmp_path}/word}}"
    assert shown["source.options.kafka.client.id"] == "${env:BUCKETLINE_TEST_WORD}"
    assert shown["source.options.kafka.sasl.jaas.config"] == "***" and shown["table"] == "${env:BUCKETLINE_TEST_TABLE}"
    printed = f"{config!r}"
    assert "correct-horse" not in printed and "battery-staple" not in printed
    # Whoever says them: in a message of another library, in an error that came from a task.
    assert mask_text("login as correct-horse with battery-staple failed") == "login as *** with *** failed"
    sent = pickle.loads(pickle.dumps(BucketlineError("no battery-staple here")))
    assert str(sent) == "no *** here"


def test_references_are_left_alone_where_nothing_is_to_be_looked_up(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "table: /w/shop.db/t\ncheckpoint: /c\nsource: {format: kafka, options: {kafka.password: '${env:NOT_THERE}'}}\n"
    )
    config = resolve_job(read_settings_file(str(path)))
    assert {k: text for k, text, _ in show_settings(config.settings)}["source.options.kafka.password"] == (
        "${env:NOT_THERE}"
    )
    with pytest.raises(OptionError, match="NOT_THERE"):
        load_job(str(path))
