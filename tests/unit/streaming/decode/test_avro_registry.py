"""Schemas by id: asked for once, waited for while the registry is down; a silent registry is no record's fault."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.sources.registry_options import RegistryOptions, registry_options
from bucketline.streaming.decode.avro import registry_client, schema_folder
from bucketline.streaming.decode.avro.avro_schema import AvroSchema
from bucketline.streaming.decode.avro.registry import ReadSchemas, RegistrySchemas
from bucketline.streaming.decode.avro.registry_client import ConfluentClient, require_package
from bucketline.streaming.decode.avro.registry_errors import RegistryDownError, RegistryError
from tests.support.servers.schema_registry import SchemaRegistry, schema_registry

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as server:
        yield server


def read(registry: SchemaRegistry, folder: Path | None, **more: object) -> ReadSchemas:
    options = RegistryOptions(registry.url, retries=0, **more)  # type: ignore[arg-type]
    return ReadSchemas(ConfluentClient(options), folder)


def test_a_schema_is_asked_for_once_on_a_host(registry: SchemaRegistry, tmp_path: Path) -> None:
    known = registry.add("orders-value", ORDER)
    for _ in range(3):
        schemas = read(registry, tmp_path)
        for _ in range(3):
            schema = schemas.schema(known)
            assert isinstance(schema, AvroSchema)
            assert schema.root.names == ("id",)
    assert len(registry.asked) == 1


def test_a_schema_is_found_by_its_guid(registry: SchemaRegistry, tmp_path: Path) -> None:
    known = registry.add("orders-value", ORDER)
    assert isinstance(read(registry, tmp_path).schema(UUID(registry.guid(known))), AvroSchema)


def test_referenced_schemas_are_read_with_those_that_they_name(registry: SchemaRegistry, tmp_path: Path) -> None:
    registry.add("City", {"type": "record", "name": "City", "fields": [{"name": "name", "type": "string"}]})
    to_city = {"name": "City", "subject": "City", "version": 1}
    address = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "City"}]}
    registry.add("Address", address, references=[to_city])
    order = {"type": "record", "name": "Order", "fields": [{"name": "to", "type": "Address"}]}
    known = registry.add("orders", order, references=[{"name": "Address", "subject": "Address", "version": 1}])
    schema = read(registry, tmp_path).schema(known)
    assert isinstance(schema, AvroSchema), schema
    assert schema.root.children[0].children[0].names == ("name",)


def test_an_unknown_id_is_a_reason_that_names_it_and_is_asked_for_again_later(
    registry: SchemaRegistry, tmp_path: Path
) -> None:
    schemas = read(registry, tmp_path)
    now = [0.0]
    schemas.now = lambda: now[0]
    assert schemas.schema(1) == "the schema registry has no schema with id 1"
    assert schemas.schema(1) == "the schema registry has no schema with id 1"
    assert len(registry.asked) == 1
    registry.add("orders", ORDER)
    now[0] = 60.0
    assert isinstance(schemas.schema(1), AvroSchema)


@pytest.mark.parametrize(
    ("schema", "more", "reason"),
    [
        ("message Order {}", {"schemaType": "PROTOBUF"}, "is of type PROTOBUF, but the job reads Avro"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "Other"}]}, {}, "cannot be used"),
        ("{", {}, "cannot be used"),
        (ORDER, {"references": [{"name": "X", "subject": "X", "version": 2}]}, "refers to X version 2"),
    ],
)
def test_a_schema_that_cannot_be_used_says_why(
    registry: SchemaRegistry, tmp_path: Path, schema: object, more: dict[str, object], reason: str
) -> None:
    known = registry.add("orders", schema, **more)
    text = read(registry, tmp_path).schema(known)
    assert isinstance(text, str)
    assert reason in text
    assert "with id 1" in text


def test_the_reason_against_a_schema_stays_while_it_is_not_asked_for_again(
    registry: SchemaRegistry, tmp_path: Path
) -> None:
    known = registry.add("orders", "message Order {}", schemaType="PROTOBUF")
    schemas = read(registry, tmp_path)
    assert schemas.schema(known) == schemas.schema(known)
    assert len(registry.asked) == 1


def test_a_registry_that_is_down_is_an_error_that_the_driver_waits_with(
    registry: SchemaRegistry, tmp_path: Path
) -> None:
    known = registry.add("orders", ORDER)
    registry.status = 503
    schemas = read(registry, tmp_path)
    with pytest.raises(RegistryDownError, match=f"the schema registry at {registry.url} answers 503"):
        schemas.schema(known)
    registry.status = 200
    assert isinstance(schemas.schema(known), AvroSchema)


@pytest.mark.parametrize("body", [b"default backend - 404", b'{"message": "no Route matched"}'])
def test_a_404_that_is_not_the_registrys_is_no_records_fault(
    registry: SchemaRegistry, tmp_path: Path, body: bytes
) -> None:
    known = registry.add("orders", ORDER)
    registry.status, registry.body = 404, body
    schemas = read(registry, tmp_path)
    with pytest.raises(RegistryDownError, match=r"answers 404: .*; check source\.registry\.url"):
        schemas.schema(known)
    assert "no schema with GUID" in str(schemas.schema(UUID(registry.guid(known))))
    registry.status, registry.body = 200, None
    assert isinstance(schemas.schema(known), AvroSchema)


def test_a_registry_that_is_not_there_is_an_error_with_its_address(tmp_path: Path) -> None:
    with schema_registry() as server:
        url = server.url
    schemas = ReadSchemas(ConfluentClient(RegistryOptions(url, retries=0)), tmp_path)
    with pytest.raises(RegistryDownError, match=f"the schema registry at {url} does not answer: [^\n]+$"):
        schemas.schema(1)


def test_a_refused_login_is_an_error_at_once_and_shows_no_secret(registry: SchemaRegistry, tmp_path: Path) -> None:
    registry.status = 401
    schemas = read(registry, tmp_path, username="ann", password="hunter22")
    with pytest.raises(RegistryError, match="answers 401") as caught:
        schemas.schema(1)
    assert "source.registry.username" in str(caught.value)
    assert "hunter22" not in repr(caught.value) + str(caught.value)


def test_user_and_token_reach_the_registry(registry: SchemaRegistry, tmp_path: Path) -> None:
    registry.add("orders", ORDER)
    read(registry, tmp_path / "a", username="ann", password="p:w").client.schema_text(1)
    read(registry, tmp_path / "b", token="t0ken").client.schema_text(1)
    assert registry.logins == {"Basic YW5uOnA6dw==", "Bearer t0ken"}


def test_what_is_sent_to_tasks_shows_no_secret() -> None:
    settings = {"source.registry.url": "https://r:8081", "source.registry.token": "t0ken"}
    options = registry_options(settings)
    assert options is not None
    assert "t0ken" not in repr(RegistrySchemas(options, "job"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"usernam": "a"}, "did you mean 'source.registry.username'"),
        ({"username": "a"}, "'source.registry.username' needs 'source.registry.password'"),
        ({"ssl.key.location": "a"}, "'source.registry.ssl.key.location' needs"),
        ({"username": "a", "password": "b", "token": "c"}, "two ways to log in"),
        ({"username": "a:b", "password": "b"}, "must not have a colon"),
        ({"url": "ftp://x"}, "must be an http or https address"),
        ({"timeout": "10"}, "unit"),
    ],
)
def test_a_wrong_option_is_refused_with_its_remedy(settings: dict[str, str], message: str) -> None:
    given = {"url": "http://r", **settings}
    with pytest.raises(OptionError, match=message):
        registry_options({f"source.registry.{key}": value for key, value in given.items()})


def test_the_schema_of_the_file_on_disk_is_what_the_registry_said(registry: SchemaRegistry, tmp_path: Path) -> None:
    known = registry.add("orders", ORDER)
    read(registry, tmp_path).schema(known)
    kept = json.loads((tmp_path / f"{known}.json").read_text())
    assert json.loads(kept["schema"]) == ORDER


def test_without_a_folder_each_process_asks(registry: SchemaRegistry) -> None:
    known = registry.add("orders", ORDER)
    for _ in range(2):
        assert isinstance(read(registry, None).schema(known), AvroSchema)
    assert len(registry.asked) == 2


def test_a_folder_that_is_gone_does_no_harm(registry: SchemaRegistry, tmp_path: Path) -> None:
    known = registry.add("orders", ORDER)
    assert isinstance(read(registry, tmp_path / "gone").schema(known), AvroSchema)


def test_what_is_kept_in_a_folder_and_cannot_be_read_is_asked_for(registry: SchemaRegistry, tmp_path: Path) -> None:
    known = registry.add("orders", ORDER)
    (tmp_path / f"{known}.json").write_text('{"schema": 1')
    assert isinstance(read(registry, tmp_path).schema(known), AvroSchema)


def test_the_folder_of_a_job_is_its_users_own_and_goes_with_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    schemas = RegistrySchemas(RegistryOptions("http://r"), "job")
    folder = schema_folder.folder_of("job", "http://r")
    assert folder is not None
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder.parent)] == [0o700, 0o700]
    schemas.forget()
    assert not folder.exists()


def test_a_folder_of_somebody_else_or_none_at_all_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = tmp_path / f"bucketline-schemas-{os.getuid()}"
    own.mkdir()
    own.chmod(0o777)
    assert schema_folder.folder_of("job", "http://r") is None
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no" / "where"))
    assert schema_folder.folder_of("job", "http://r") is None


def test_folders_of_jobs_that_ended_long_ago_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    old, young = (schema_folder.folder_of(job, "http://r") for job in ("old", "young"))
    assert old is not None
    assert young is not None
    os.utime(old, (0, 0))
    schema_folder.folder_of("new", "http://r")
    assert (old.exists(), young.exists()) == (False, True)


def test_a_python_without_the_client_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_client, "_PACKAGE", "confluent_kafka.not_there")
    with pytest.raises(RegistryError, match=r"install bucketline\[registry\]"):
        require_package()
