"""Schemas out of a schema registry, by their ids or GUIDs: asked for once a host, kept for the life of a job.

An id never gets another schema, so what was read once stays true. Tasks of one host share what they have read by files
in a folder of the job's own, and ask one at a time: a new schema costs one request a host, not one a task.

A registry that does not answer is waited for, with a line in the log. Then the batch fails, and is done again later: no
record is to blame.

Source: Confluent's schema registry API; confluent-kafka's SchemaRegistryClient sends the requests.
"""

import contextlib
import fcntl
import hashlib
import importlib
import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bucketline.conf.registry_options import URL, RegistryOptions
from bucketline.conf.secrets import mask_text
from bucketline.state.errors import SchemaMismatchError, StorageError
from bucketline.streaming.decode.avro.avro_frames import SchemaName
from bucketline.streaming.decode.avro.avro_schema import AvroSchema, parse_avro_schema

_LOG = logging.getLogger("bucketline.registry")
_NOT_FOUND = 404
_TRY_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 15.0
_UNKNOWN_FOR_S = 30.0


class RegistryError(StorageError):
    """The schema registry does not answer, or refuses to; the batch can be done again."""


class Client(Protocol):
    """What sends one request."""

    def schema_text(self, name: SchemaName) -> "SchemaText | str":
        """The schema with that id, or why there is none. Raises RegistryError."""


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema and those that it names, each after those that it names itself; JSON texts."""

    text: str
    references: tuple[str, ...] = ()

    def parsed(self) -> AvroSchema:
        return parse_avro_schema(json.loads(self.text), [json.loads(one) for one in self.references])

    def encode(self) -> str:
        return json.dumps({"schema": self.text, "references": self.references})


@dataclass(frozen=True, slots=True)
class RegistrySchemas:
    """The schemas of a registry. `job` names the run of a job, whose tasks share what they have read; a value that can
    be sent to tasks."""

    options: RegistryOptions
    job: str

    def schema(self, name: SchemaName) -> AvroSchema | str:
        """The schema with that id; or, as a text, why records that name it are bad. Raises RegistryError."""
        return _read_schemas(self).schema(name)


@dataclass(slots=True)
class ReadSchemas:
    """What this process has read of one registry for one job."""

    client: Client
    folder: Path
    wait_ms: int
    pause: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    _schemas: dict[SchemaName, AvroSchema | str] = field(default_factory=dict)
    _unknown: dict[SchemaName, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def schema(self, name: SchemaName) -> AvroSchema | str:
        with self._lock:
            known = self._schemas.get(name)
            if known is None:
                text = self._text(name)
                known = text if isinstance(text, str) else _parsed(name, text)
                if not isinstance(text, str):
                    self._schemas[name] = known
            return known

    def _text(self, name: SchemaName) -> SchemaText | str:
        """From the folder, else from the registry, one task of a host at a time."""
        if self._unknown.get(name, self.now()) > self.now():
            return unknown(name)
        with _locked(self.folder / "lock"):
            path = self.folder / f"{name}.json"
            with contextlib.suppress(OSError, ValueError, KeyError):
                kept = json.loads(path.read_text(encoding="utf-8"))
                return SchemaText(kept["schema"], tuple(kept["references"]))
            text = self._asked(name)
            if isinstance(text, str):
                self._unknown[name] = self.now() + _UNKNOWN_FOR_S
            else:
                _keep(path, text.encode())
            return text

    def _asked(self, name: SchemaName) -> SchemaText | str:
        """The registry's answer; one that does not come is waited for."""
        until, pause = self.now() + self.wait_ms / 1000, _FIRST_PAUSE_S
        while True:
            try:
                return self.client.schema_text(name)
            except RegistryError as e:
                if not e.retryable or self.now() + pause > until:
                    raise
                _LOG.warning("waiting for the schema registry: %s", e.message)
            self.pause(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)


class ConfluentClient:
    """Asks by confluent-kafka's client."""

    def __init__(self, options: RegistryOptions) -> None:
        self._url = mask_text(options.url)
        module = _package("confluent_kafka.schema_registry")
        self._error: type[Exception] = module.SchemaRegistryError
        try:
            self._client = module.SchemaRegistryClient(client_settings(options))
        except (ValueError, OSError) as e:
            raise RegistryError(f"cannot use '{URL.key}' = {self._url}: {mask_text(str(e))}", retryable=False) from e

    def schema_text(self, name: SchemaName) -> SchemaText | str:
        by_id, by_guid = self._client.get_schema, self._client.get_schema_by_guid
        schema = self._answer(partial(by_id, name) if isinstance(name, int) else partial(by_guid, str(name)))
        if schema is None:
            return unknown(name)
        if schema.schema_type != "AVRO":
            return f"the schema {shown(name)} is of type {schema.schema_type}, and the job reads Avro"
        references: dict[tuple[str, int], str] = {}
        missing = self._collect(schema, references)
        if missing is not None:
            return f"the schema {shown(name)} names {missing}, which the schema registry does not have"
        return SchemaText(schema.schema_str, tuple(references.values()))

    def _collect(self, schema: Any, references: dict[tuple[str, int], str]) -> str | None:
        """Adds the schemas that this one names, the inner ones first; the name of one that is missing."""
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

    def _answer(self, ask: Callable[[], Any]) -> Any:
        """What the registry says; None for what it does not have. Raises RegistryError."""
        try:
            return ask()
        except self._error as e:
            status = int(getattr(e, "http_status_code", 0))
            if status == _NOT_FOUND:
                return None
            message = f"the schema registry at {self._url} answers {status}: {mask_text(str(e))}"
            if status in (401, 403):
                message += "; check source.registry.username and password, or token"
            raise RegistryError(message, retryable=status in _TRY_AGAIN) from e
        except Exception as e:  # its HTTP library's errors pass through the client, and have no class of ours in common
            raise self._silent(e) from e

    def _silent(self, e: Exception) -> RegistryError:
        reason = mask_text(str(e)) or type(e).__name__
        is_answer = isinstance(e, ValueError | TypeError)
        what = "answers what cannot be read" if is_answer else "does not answer"
        return RegistryError(f"the schema registry at {self._url} {what}: {reason}", retryable=not is_answer)


def shown(name: SchemaName) -> str:
    """A schema's name in a reason."""
    return f"with id {name}" if isinstance(name, int) else f"with GUID {name}"


def unknown(name: SchemaName) -> str:
    """Why a record is bad whose schema is not there."""
    return f"the schema registry has no schema {shown(name)}"


def client_settings(options: RegistryOptions) -> Mapping[str, object]:
    """The options as confluent-kafka's client takes them."""
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


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise RegistryError(
            f"this Python cannot ask a schema registry ({e}): install bucketline[registry] where the tasks run",
            retryable=False,
        ) from e


def _parsed(name: SchemaName, text: SchemaText) -> AvroSchema | str:
    try:
        return text.parsed()
    except (SchemaMismatchError, ValueError, RecursionError) as e:
        return f"the schema {shown(name)} cannot be used: {e}"


_READ: dict[RegistrySchemas, ReadSchemas] = {}
_READ_LOCK = threading.Lock()
_MOST_JOBS = 16


def _read_schemas(registry: RegistrySchemas) -> ReadSchemas:
    with _READ_LOCK:
        if registry not in _READ:
            while len(_READ) >= _MOST_JOBS:
                del _READ[next(iter(_READ))]
            client = ConfluentClient(registry.options)
            _READ[registry] = ReadSchemas(client, _folder(registry), registry.options.wait_ms)
        return _READ[registry]


def _folder(registry: RegistrySchemas) -> Path:
    """The folder of a job's schemas on this host; nobody else may write there."""
    name = hashlib.sha256(f"{registry.job}\n{registry.options.url}".encode()).hexdigest()[:32]
    own = Path(tempfile.gettempdir()) / f"bucketline-schemas-{os.getuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    found = own.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077 or own.is_symlink():
        own = Path(tempfile.mkdtemp(prefix="bucketline-schemas-"))
    folder = own / name
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """While it lasts no other process of this host is in here."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _keep(path: Path, text: str) -> None:
    """Keeps a schema for other processes; where that fails they ask themselves."""
    with contextlib.suppress(OSError):
        own = path.with_suffix(f".{os.getpid()}")
        own.write_text(text, encoding="utf-8")
        own.replace(path)
