"""The REST catalog of a world: the REST server of the tests. A request to it is a turn of the process that sends it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from bucketline.conf.catalog_link import CatalogLink
from bucketline.conf.catalog_options import catalog_settings
from bucketline.conf.errors import BucketlineError
from bucketline.state.format.table_name import TableName
from bucketline.state.store.server import rest_client, rest_table
from bucketline.state.store.server.rest_client import RestClient
from bucketline.state.store.server.rest_table import RestTable
from bucketline.state.store.storage.rest_table_io import RestTableIO
from tests.simulation.disk import Disk
from tests.simulation.faults import Store, Trouble
from tests.simulation.scheduler import Process, Scheduler, current
from tests.simulation.storages import SimIO
from tests.support.servers.rest_server import TOKEN, AnswerError, Owned, Request, RestServer

T = TypeVar("T")

DATABASE = "shop"
_SERVER_FAILS = 500


class Served(Trouble):
    """Whose request the server is serving. A request that waits lets others in, so each process has its own."""

    @property  # type: ignore[override]
    def owner(self) -> Any:
        return vars(self).get("owners", {}).get(current())

    @owner.setter
    def owner(self, owner: Any) -> None:
        vars(self).setdefault("owners", {})[current()] = owner


class ServerIO(SimIO):
    """The disk as the server reads and writes it: without delay or faults."""

    def _call(self, name: str, path: str, act: Callable[[], T], torn: Callable[[], object] | None = None) -> T:
        return act()

    def _listed(self, ask: Callable[[], list[T]]) -> list[T]:
        return ask()


@dataclass(frozen=True, slots=True)
class SimClient(RestClient):
    """The client of one process."""

    io: SimIO = field(kw_only=True)
    server: RestServer = field(kw_only=True, compare=False, repr=False)

    def _sent(self, method: str, url: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        address = urlsplit(url)
        data = json.loads(json.dumps(body or {}))
        request = Request(method, address.path, data, {"Authorization": f"Bearer {TOKEN}"})
        query = {k: v[0] for k, v in parse_qs(address.query).items()}
        owner = self.io.trouble.owner

        def serve() -> dict[str, Any]:
            self.server.requests.append(request)
            self.server.io.trouble.owner = owner  # type: ignore[attr-defined]
            try:
                return dict(self.server._do(request, query) or {})
            except AnswerError as e:
                status, told = e.status, {"message": str(e), "resourceType": e.kind}
            except BucketlineError as e:
                status, told = _SERVER_FAILS, {"message": str(e)}
            rest_client._raise_answer(f"{method} {url}", status, json.dumps(told).encode())

        return self.io._call("ask" if method == "GET" else "request", address.path, serve)


class Catalog:
    """The catalog that owns the tables of a world."""

    def __init__(self, disk: Disk, world: Scheduler) -> None:
        server_process = Process("server", world, world.chance_of("server"))
        io = ServerIO(disk, server_process, Store.REST, Served())
        self.server = RestServer(Path("/simulated"), databases={DATABASE: {}}, io=io)  # type: ignore[arg-type]
        rest_table._branch_id.cache_clear()

    def adopt(self, name: str, path: str) -> None:
        """Gives the catalog a table that exists."""
        self.server.databases[DATABASE][name] = Owned(f"id-{name}", path)

    def storage(self, io: SimIO, path: str) -> SimIO | RestTableIO:
        """The storage through which a process reaches a table; `io` itself for a path that belongs to no table."""
        name = path.rpartition("/")[2]
        if name not in self.server.databases[DATABASE]:
            return io
        client = SimClient("http://catalog", TOKEN, self.server.prefix, io=io, server=self.server)
        settings = catalog_settings({"metastore": "rest", "uri": client.uri, "token": TOKEN, "warehouse": "lake"}, {})
        link = CatalogLink(settings, f"{DATABASE}.{name}", path, f"id-{name}")
        return RestTableIO(io, link, RestTable(client, TableName(DATABASE, name), f"id-{name}"), path)
