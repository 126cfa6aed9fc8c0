"""Debezium itself over a database of this machine: its events as JSON, as JSON with schemas, and as Avro.

    with Postgres(wal_level="logical") as database:
        ...                                     # tables; `zz_marker`, the last by name, with a row
        with debezium({**postgres_connector(database), **avro_converter(registry)}, folder) as events:
            snapshot = events.until("s.public.zz_marker")
            ...                                 # change rows, then insert one into `zz_marker`
            changes = events.until("s.public.zz_marker")

One run gives each event in all forms: `avro_converter` adds Avro, by Apicurio's converter and with a registry.
"""

import base64
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from threading import Timer

from tests.support.peers.jars import class_path
from tests.support.servers.mariadb import PASSWORD as MARIADB_PASSWORD
from tests.support.servers.mariadb import USER as MARIADB_USER
from tests.support.servers.mariadb import MariaDb
from tests.support.servers.postgres import PASSWORD as POSTGRES_PASSWORD
from tests.support.servers.postgres import Postgres

JSON, JSON_WITH_SCHEMA, AVRO = "json", "json-schema", "avro"
"""The forms of records."""

TOPICS = "s"
"""What the names of all topics begin with: `s.public.orders`, `s.shop.orders`."""

_COMES_WITHIN_S = 400
_TOOL = Path(__file__).parents[1] / "java" / "DebeziumTool.java"


@dataclass(frozen=True, slots=True)
class Event:
    """A record as Debezium's converter has written it."""

    topic: str
    key: bytes | None
    value: bytes | None


class Events:
    """The records of a running Debezium, in their order."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def until(self, topic: str, form: str = AVRO) -> dict[str, list[Event]]:
        """The records, by form, up to the first of that topic: it is left out.

        `form` is the last form that Debezium writes of a record: `avro`, or without it `json-schema`.
        """
        found: dict[str, list[Event]] = {JSON: [], JSON_WITH_SCHEMA: [], AVRO: []}
        late = Timer(_COMES_WITHIN_S, self._process.kill)
        late.start()
        try:
            for line in self._lines():
                parts = line.rstrip("\n").split("\t")
                if parts[0] == "end":
                    break
                if parts[1] != topic:
                    found[parts[0]].append(Event(parts[1], _bytes(parts[2]), _bytes(parts[3])))
                elif parts[0] == form:
                    return found
        finally:
            late.cancel()
        raise RuntimeError(f"Debezium ended before {topic}:\n{self._log.read_text(errors='replace')[-5000:]}")

    def _lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        return iter(self._process.stdout.readline, "")


@contextmanager
def debezium(settings: Mapping[str, str], folder: Path) -> Iterator[Events]:
    """Debezium with these settings, from the start of its process on. `folder` gets its offsets and its log."""
    everywhere = {
        "name": "bucketline",
        "topic.prefix": TOPICS,
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "1000",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder / "history"),
        "database.hostname": "127.0.0.1",
        "poll.interval.ms": "20",
    }
    written = folder / "debezium.properties"
    written.write_text("".join(f"{key}={value}\n" for key, value in {**everywhere, **settings}.items()))
    java = which("java")
    assert java is not None, "java is not on PATH"
    log = folder / "debezium.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", class_path("debezium"), str(_TOOL), str(written)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    try:
        yield Events(process, log)
    finally:
        assert process.stdin is not None and process.stdout is not None
        process.kill()
        process.wait(30)
        process.stdin.close()
        process.stdout.close()


def postgres_connector(database: Postgres, **settings: str) -> dict[str, str]:
    """Settings for all tables of the server; it needs `wal_level=logical`."""
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.port": str(database.port),
        "database.user": database.login["jdbc.user"],
        "database.password": POSTGRES_PASSWORD,
        "database.dbname": "postgres",
        "plugin.name": "pgoutput",
        "schema.include.list": "public",
        **_dotted(settings),
    }


def mariadb_connector(database: MariaDb, **settings: str) -> dict[str, str]:
    """Settings for all tables of the database `shop`."""
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.port": str(database.port),
        "database.user": MARIADB_USER,
        "database.password": MARIADB_PASSWORD,
        "database.include.list": "shop",
        "database.server.id": "7",
        "database.ssl.mode": "disable",
        "include.schema.changes": "false",
        **_dotted(settings),
    }


def avro_converter(registry: str) -> dict[str, str]:
    """Settings that make Avro of the records too. `registry` is the address that `apicurio` gives."""
    server = registry.removesuffix("/apis/ccompat/v7")
    return {
        "avro.converter": "io.apicurio.registry.utils.converter.AvroConverter",
        "avro.apicurio.registry.url": f"{server}/apis/registry/v2",
        "avro.apicurio.registry.auto-register": "true",
        "avro.apicurio.registry.if-exists": "RETURN_OR_UPDATE",
        "avro.apicurio.registry.as-confluent": "true",
        "avro.apicurio.registry.use-id": "contentId",  # the ids of the API that we ask
        "schema.name.adjustment.mode": "avro",
        "field.name.adjustment.mode": "avro",
    }


def _dotted(settings: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): text for name, text in settings.items()}


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else base64.b64decode(text)
