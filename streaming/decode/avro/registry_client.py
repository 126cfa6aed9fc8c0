"""Sends requests to a schema registry, and interprets the answers.
Source: Confluent's schema registry API; confluent-kafka's SchemaRegistryClient sends the requests.
"""

import importlib
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from bucketline.conf.secrets import mask_text
from bucketline.conf.sources.registry_options import CA_LOCATION, URL, RegistryOptions
from bucketline.streaming.decode.avro.avro_frames import SchemaName
from bucketline.streaming.decode.avro.avro_schema import AvroSchema, parse_avro_schema
from bucketline.streaming.decode.avro.registry_errors import RegistryDownError, RegistryError

_NOT_FOUND = 404
_NO_CODES = (None, -1)
"""The error code that the client reports for an answer without one. A registry's own answers have an error code."""
_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_TRUST = f"set {CA_LOCATION.key} to the certificates to trust"
_PACKAGE = "confluent_kafka.schema_registry"


class Client(Protocol):
    """A client that sends requests to a schema registry."""

    def schema_text(self, name: SchemaName) -> "SchemaText | str":
        """Returns the text of the schema with that id or GUID, or the reason why it cannot be used. Raises
        RegistryError if the registry does not answer.
        """


@dataclass(frozen=True, slots=True)
class SchemaText:
    """The JSON text of a schema (`text`), and the texts of the schemas whose types it uses (`references`), in the order
    that `parse_avro_schema` needs.
    """

    text: str
    references: tuple[str, ...] = ()

    def parsed(self) -> AvroSchema:
        return parse_avro_schema(json.loads(self.text), [json.loads(one) for one in self.references])

    def encode(self) -> str:
        return json.dumps({"schema": self.text, "references": self.references})


class ConfluentClient:
    """Sends requests with confluent-kafka's client."""

    def __init__(self, options: RegistryOptions) -> None:
        self._url = mask_text(options.url)
        module = _package()
        self._error: type[Exception] = module.SchemaRegistryError
        try:
            self._client = module.SchemaRegistryClient(client_settings(options))
        except (ValueError, OSError) as e:
            raise RegistryError(f"cannot use '{URL.key}' = {self._url}: {_one_line(e)}") from e

    def schema_text(self, name: SchemaName) -> SchemaText | str:
        by_id, by_guid = self._client.get_schema, self._client.get_schema_by_guid
        if isinstance(name, int):
            schema = self._answer(partial(by_id, name))
        else:  # older registries know no GUIDs at all
            schema = self._answer(partial(by_guid, str(name)), is_always_known=False)
        if schema is None:
            return unknown(name)
        if schema.schema_type != "AVRO":
            return f"the schema {shown(name)} is of type {schema.schema_type}, but the job reads Avro"
        references: dict[tuple[str, int], str] = {}
        missing = self._collect(schema, references)
        if missing is not None:
            return f"the schema {shown(name)} refers to {missing}, which the schema registry does not have"
        return SchemaText(schema.schema_str, tuple(references.values()))

    def _collect(self, schema: Any, references: dict[tuple[str, int], str]) -> str | None:
        """Adds to `references` the texts of the schemas whose types this schema uses; each schema comes after the
        schemas that it uses. Returns the name of a schema that the registry does not have; None if it has all schemas.
        """
        for reference in schema.references or ():
            place = (reference.subject, int(reference.version))
            if place in references:
                continue
            named = self._answer(partial(self._client.get_version, *place))
            if named is None:
                return f"{reference.subject} version {reference.version}"
            missing = self._collect(named.schema, references)
            if missing is not None:
                return missing
            references.setdefault(place, named.schema.schema_str)
        return None

    def _answer(self, ask: Callable[[], Any], *, is_always_known: bool = True) -> Any:
        """Returns the answer of the registry; None if the registry does not have the schema that was asked for. Raises
        RegistryError if the registry does not answer or refuses.

        `is_always_known` is true if every registry knows requests of this kind. Then an answer 404 without an error
        code does not come from a registry, but for example from a proxy that does not reach its registry. Such an
        answer must not make records bad.
        """
        try:
            return ask()
        except self._error as e:
            status = int(getattr(e, "http_status_code", 0))
            message = f"the schema registry at {self._url} answers {status}: {_one_line(e)}"
            if status == _NOT_FOUND:
                if not is_always_known or getattr(e, "error_code", None) not in _NO_CODES:
                    return None
                raise RegistryDownError(f"{message}; check source.registry.url") from e
            if status in (401, 403):
                message += "; check source.registry.username and password, or token"
            raise (RegistryDownError if status in _TRY_AGAIN else RegistryError)(message) from e
        except Exception as e:  # errors of its HTTP library pass through the client, and have no class in common
            raise self._silent(e) from e

    def _silent(self, e: Exception) -> RegistryError:
        where = f"the schema registry at {self._url}"
        if isinstance(e, ValueError | TypeError):
            return RegistryError(f"{where} sends an answer that cannot be read: {_one_line(e)}")
        if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in _causes(e)):
            return RegistryError(f"{where} has a certificate that is not trusted: {_one_line(e)}; {_TRUST}")
        return RegistryDownError(f"{where} does not answer: {_one_line(e)}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error and the errors that caused it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def shown(name: SchemaName) -> str:
    """Returns a phrase for a schema, such as `with id 7` or `with GUID ...`, for the text that says why a record is
    bad.
    """
    return f"with id {name}" if isinstance(name, int) else f"with GUID {name}"


def unknown(name: SchemaName) -> str:
    """Returns the reason why a record is bad if the registry does not have its schema."""
    return f"the schema registry has no schema {shown(name)}"


def client_settings(options: RegistryOptions) -> Mapping[str, object]:
    """Returns the options in the form that confluent-kafka's client takes."""
    settings: dict[str, object] = {
        "url": options.url,
        "timeout": options.timeout_ms / 1000,
        "max.retries": options.retries,
        "retries.wait.ms": 100,
        "retries.max.wait.ms": 2_000,
        "ssl.ca.location": options.ca_location,
        "ssl.certificate.location": options.certificate,
        "ssl.key.location": options.key,
        "ssl.key.password": options.key_password,
        "proxy": options.proxy,
    }
    if options.username is not None:
        settings["basic.auth.user.info"] = f"{options.username}:{options.password}"
    if options.token is not None:
        settings |= {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": options.token}
        settings |= {"bearer.auth.logical.cluster": "", "bearer.auth.identity.pool.id": ""}
    return {name: value for name, value in settings.items() if value is not None}


def require_package() -> None:
    """Raises RegistryError if this Python lacks the package that sends requests to a registry."""
    _package()


def _package() -> Any:
    try:
        return importlib.import_module(_PACKAGE)
    except ImportError as e:
        raise RegistryError(
            f"this Python cannot ask a schema registry ({e}): install bucketline[registry], also where the tasks run"
        ) from e


def _one_line(error: Exception) -> str:
    """Returns the text of an error on one line, without secrets: the driver reads errors of tasks line by line."""
    return mask_text(" ".join(str(error).split())) or type(error).__name__
