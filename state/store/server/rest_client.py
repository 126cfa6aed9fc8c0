"""A client of Paimon's REST catalog: paths, JSON, pages, the bearer token, and errors that say whether to repeat a
request.

A request that changes something is sent once. A request that only reads is repeated after an error that may be
temporary.

Source: Paimon's OpenAPI description of the REST catalog; Paimon 2.0 RESTApi, ResourcePaths, DefaultErrorHandler.
"""

import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, urlencode
from urllib.request import Request, urlopen

from bucketline.conf.secrets import mask_text
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import StorageError, UnsupportedTableError

TIMEOUT_S = 60.0
_TRIES = 4
_FIRST_PAUSE_MS = 200
_MAY_PASS = frozenset({429, 500, 502, 503, 504})
_NOT_DONE = frozenset({400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 429, 501})
"""The status codes that mean that the request was not carried out."""


class NotThereError(Exception):
    """Raised if something does not exist. `kind` says what: TABLE, DATABASE, SNAPSHOT, TAG or another kind of
    object.
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.message, self.kind = message, kind


class TakenError(Exception):
    """Raised if a name is taken."""


@dataclass(frozen=True, slots=True)
class RestClient:
    """A client of the catalog at an address. `prefix` is a part of all paths; None as long as it is not known."""

    uri: str
    token: str | None = field(default=None, repr=False)
    prefix: str | None = None
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeout_s: float = TIMEOUT_S
    world: World = SYSTEM_WORLD

    def get(self, *path: str, **query: str) -> dict[str, Any]:
        """Returns the JSON object with which the server answers a request for a path below the catalog's prefix. Raises
        NotThereError, StorageError, UnsupportedTableError.
        """
        return self._asked(self._url(path, query))

    def config(self, warehouse: str) -> dict[str, Any]:
        """Returns the server's configuration for a warehouse: `defaults` and `overrides`."""
        return self._asked(f"{self.uri.rstrip('/')}/v1/config?{urlencode({'warehouse': warehouse})}")

    def names(self, member: str, *path: str) -> list[str]:
        """Returns the names in all pages of a listing, sorted. Each page holds its names under the key `member`."""
        names: list[str] = []
        query: dict[str, str] = {}
        while True:
            page = self.get(*path, **query)
            names += [str(name) for name in page.get(member) or ()]
            token = page.get("nextPageToken")
            if not token or token == query.get("pageToken"):
                return sorted(set(names))
            query = {"pageToken": str(token)}

    def post(self, body: Mapping[str, Any], *path: str) -> dict[str, Any]:
        """Sends a request that changes something, and returns the answer.

        Raises NotThereError, TakenError, UnsupportedTableError, and StorageError, whose `published` is False if the
        server has certainly not carried out the change.
        """
        return self._sent("POST", self._url(path, {}), body)

    def delete(self, *path: str) -> None:
        """Removes the object at a path. Raises the errors of `post`."""
        self._sent("DELETE", self._url(path, {}), None)

    def _url(self, path: tuple[str, ...], query: Mapping[str, str]) -> str:
        parts = [p for p in ("v1", self.prefix, *path) if p]
        ending = f"?{urlencode(query)}" if query else ""
        return "/".join([self.uri.rstrip("/"), *map(quote_plus, parts)]) + ending

    def _asked(self, url: str) -> dict[str, Any]:
        for left in reversed(range(_TRIES)):
            try:
                return self._sent("GET", url, None)
            except StorageError as e:
                if not left or not e.retryable:
                    raise
                self.world.pause.wait_ms(_FIRST_PAUSE_MS << (_TRIES - 1 - left))
        raise AssertionError("the last try returns or raises")

    def _sent(self, method: str, url: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        headers = {"Accept": "application/json", "Content-Type": "application/json", **dict(self.headers)}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        where = mask_text(f"{method} {url}")
        try:
            with urlopen(Request(url, data, headers, method=method), timeout=self.timeout_s) as answer:
                return _decoded(where, answer.read())
        except HTTPError as e:
            with e:
                _raise_answer(where, e.code, e.read())
        except (OSError, http.client.HTTPException) as e:
            reason = e.reason if isinstance(e, URLError) else e
            never_sent = isinstance(reason, ConnectionRefusedError | socket.gaierror)
            raise _failure(
                f"{where}: {str(reason) or type(reason).__name__}",
                retryable=True,
                carried_out=False if never_sent else None,
            ) from e


def _decoded(where: str, data: bytes) -> dict[str, Any]:
    if not data.strip():
        return {}
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise _failure(f"{where}: the answer of the server is not JSON", retryable=True, carried_out=None) from e
    return answer if isinstance(answer, dict) else {}


def _raise_answer(where: str, status: int, data: bytes) -> NoReturn:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = {}
    body = body if isinstance(body, dict) else {}
    message = mask_text(f"{where}: {status} {body.get('message') or ''}".rstrip())
    if status == 404:
        raise NotThereError(message, str(body.get("resourceType") or "").upper())
    if status == 409:
        raise TakenError(message)
    if status == 501:
        raise UnsupportedTableError(message, status=status)
    carried_out = False if status in _NOT_DONE else None
    if status in (401, 403):
        message += "; check the option 'token', and what the token allows"
    raise _failure(message, retryable=status in _MAY_PASS, carried_out=carried_out, status=status)


def _failure(message: str, *, retryable: bool, carried_out: bool | None, status: int | None = None) -> StorageError:
    """Returns the error of a request. `carried_out` is False if the request was certainly not carried out; None if that
    is not known.
    """
    return StorageError(message, retryable=retryable, published=carried_out, status=status)
