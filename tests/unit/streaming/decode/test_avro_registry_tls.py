"""A registry behind TLS, with certificates of clients, and behind a proxy."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from bucketline.conf.sources.registry_options import RegistryOptions
from bucketline.streaming.decode.avro.registry_client import ConfluentClient, SchemaText
from bucketline.streaming.decode.avro.registry_errors import RegistryDownError, RegistryError
from tests.support.servers.certificates import Authority
from tests.support.servers.schema_registry import SchemaRegistry, schema_registry

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


@pytest.fixture
def registry(authority: Authority) -> Iterator[SchemaRegistry]:
    """One that asks its clients for certificates."""
    server = authority.sign("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.certificate, server.key)
    context.load_verify_locations(authority.trusted)
    context.verify_mode = ssl.CERT_REQUIRED
    with schema_registry(tls=context) as behind_tls:
        behind_tls.add("orders", ORDER)
        yield behind_tls


def client(registry: SchemaRegistry, **more: str | None) -> ConfluentClient:
    return ConfluentClient(RegistryOptions(registry.url, retries=0, timeout_ms=5_000, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("password", [None, "hunter22"])
def test_a_client_shows_its_certificate(registry: SchemaRegistry, authority: Authority, password: str | None) -> None:
    own = authority.sign("client", password)
    asking = client(
        registry, ca_location=authority.trusted, certificate=own.certificate, key=own.key, key_password=password
    )
    assert isinstance(asking.schema_text(1), SchemaText)


def test_a_client_without_a_certificate_gets_no_answer(registry: SchemaRegistry, authority: Authority) -> None:
    with pytest.raises(RegistryDownError, match=f"the schema registry at {registry.url} does not answer"):
        client(registry, ca_location=authority.trusted).schema_text(1)


def test_a_registry_that_is_not_trusted_is_not_waited_for(registry: SchemaRegistry, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    with pytest.raises(RegistryError, match=r"not trusted: .*source\.registry\.ssl\.ca\.location") as caught:
        client(registry, ca_location=other.trusted).schema_text(1)
    assert not isinstance(caught.value, RegistryDownError)


def test_a_file_with_certificates_that_is_not_there_is_named(registry: SchemaRegistry) -> None:
    with pytest.raises(RegistryError, match=r"cannot use 'source\.registry\.url'"):
        client(registry, ca_location="/no/such/file.pem")


def test_requests_go_through_the_proxy() -> None:
    with schema_registry() as proxy:
        proxy.add("orders", ORDER)
        asking = ConfluentClient(RegistryOptions("http://registry.invalid", retries=0, proxy=proxy.url))
        assert isinstance(asking.schema_text(1), SchemaText)
        assert proxy.asked[0].startswith("http://registry.invalid")
