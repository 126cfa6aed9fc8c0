"""Schemas from a schema registry, by id or GUID. Each host requests a schema once, and keeps it as long as the job
runs.

An id never gets another schema, so a schema that was read stays valid. The tasks of a host share schemas by files in a
folder of the job, and make one request at a time: a new schema costs one request for each host, not for each task. If
the registry does not answer, the batch fails and the driver repeats it later: no record becomes bad.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bucketline.conf.sources.registry_options import RegistryOptions
from bucketline.state.errors import SchemaMismatchError
from bucketline.streaming.decode.avro.avro_frames import SchemaName
from bucketline.streaming.decode.avro.avro_schema import AvroSchema
from bucketline.streaming.decode.avro.registry_client import Client, ConfluentClient, SchemaText, shown
from bucketline.streaming.decode.avro.schema_folder import alone, folder_of, keep_text, kept_text, remove_folder

_REFUSED_FOR_S = 30.0
"""For this time, in seconds, a process does not ask again for a schema that the registry lacks, or that is not Avro."""


@dataclass(frozen=True, slots=True)
class RegistrySchemas:
    """Gives tasks the schemas of a schema registry. `job` is the name of one run of the job; the tasks of this run
    share the schemas that they have requested. The object can be sent to tasks.
    """

    options: RegistryOptions
    job: str

    def schema(self, name: SchemaName) -> AvroSchema | str:
        """Returns the schema with that id or GUID, or a string that says why records with this schema are bad. Raises
        RegistryError if the registry does not answer.
        """
        return _read_schemas(self).schema(name)

    def forget(self) -> None:
        """Removes the schemas that tasks have stored on this host."""
        remove_folder(self.job, self.options.url)


@dataclass(slots=True)
class ReadSchemas:
    """The schemas that this process has read from one registry for one job."""

    client: Client
    folder: Path | None
    now: Callable[[], float] = time.monotonic
    _schemas: dict[SchemaName, AvroSchema | str] = field(default_factory=dict)
    _refused: dict[SchemaName, tuple[str, float]] = field(default_factory=dict)
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
        """Returns the text of a schema. The text is read from a local folder in which the tasks of this host keep
        schemas; if it is missing there, from the schema registry. Only one task of a host does this at a time. Returns
        a reason instead if the registry does not have the schema.
        """
        reason, until = self._refused.get(name, ("", self.now()))
        if until > self.now():
            return reason
        with alone(self.folder):
            kept = _decoded(kept_text(self.folder, str(name)))
            if kept is not None:
                return kept
            text = self.client.schema_text(name)
            if isinstance(text, str):
                self._refused[name] = text, self.now() + _REFUSED_FOR_S
            else:
                keep_text(self.folder, str(name), text.encode())
            return text


def _decoded(text: str | None) -> SchemaText | None:
    """Returns the schema in a text that `SchemaText.encode` has written; None if the text cannot be parsed."""
    try:
        kept = json.loads(text or "null")
        return None if kept is None else SchemaText(kept["schema"], tuple(kept["references"]))
    except (ValueError, KeyError, TypeError):
        return None


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
            _READ[registry] = ReadSchemas(client, folder_of(registry.job, registry.options.url))
        return _READ[registry]
