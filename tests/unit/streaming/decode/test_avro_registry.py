"""Schemas by id: asked for once, waited for while the registry is down; a silent registry is no record's fault."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from bucketline.conf.errors import OptionError
from bucketline.conf.registry_options import RegistryOptions, registry_options
from bucketline.streaming.decode.avro.avro_schema import AvroSchema
from bucketline.streaming.decode.avro.registry import ConfluentClient, ReadSchemas, RegistryError, RegistrySchemas
from tests.support.schema_registry import SchemaRegistry, schema_registry

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as server:
        yield server


def read(registry: SchemaRegistry, folder: Path, **more: object) -> ReadSchemas:
    options = RegistryOptions(registry.url, retries=0, **more)  # type: ignore[arg-type]
    return ReadSchemas(ConfluentClient(options), folder, options.wait_ms)


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
        ("message Order {}", {"schemaType": "PROTOBUF"}, "is of type PROTOBUF, and the job reads Avro"),
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "Other"}]}, {}, "cannot be used"),
        ("{", {}, "cannot be used"),
        (ORDER, {"references": [{"name": "X", "subject": "X", "version": 2}]}, "names X version 2"),
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


def test_a_registry_that_is_down_is_waited_for(
    registry: SchemaRegistry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = registry.add("orders", ORDER)
    registry.status = 503
    schemas = read(registry, tmp_path)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        registry.status = 200 if len(pauses) == 3 else 503

    schemas.pause = pause
    assert isinstance(schemas.schema(known), AvroSchema)
    assert pauses == [1.0, 2.0, 4.0]
    assert f"waiting for the schema registry: the schema registry at {registry.url} answers 503" in caplog.text


def test_a_registry_that_stays_away_is_an_error_with_its_address(tmp_path: Path) -> None:
    with schema_registry() as server:
        url = server.url
    schemas = ReadSchemas(ConfluentClient(RegistryOptions(url, retries=0)), tmp_path, 5_000)
    now = [0.0]
    schemas.now = lambda: now[0]
    schemas.pause = lambda seconds: now.__setitem__(0, now[0] + seconds)
    with pytest.raises(RegistryError, match=f"the schema registry at {url} does not answer"):
        schemas.schema(1)
    assert now[0] <= 5


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
        ({"username": "a"}, "'source.registry.username' needs 'source.registry.password' as well"),
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
