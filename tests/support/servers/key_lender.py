"""Gives processes short-lived keys of S3, as clouds do, and stands before a store: keys that have ended are refused.

Clients ask for new keys five minutes before the end that they are told. So keys are said to live five minutes more
than they are used: a client that renews in time is never refused.
"""

import json
import math
import re
import sys
import threading
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from tests.support.servers.http_front import HttpFront, passed_on, send

SECRET, TOKEN = "lent-secret", "lent-token"
"""What the secrets that are lent begin with."""

_KEYS = "/keys"
_INSTANCE = "/latest/meta-data/iam/security-credentials/"
_ASKED_EARLY = timedelta(minutes=5)
_PROGRAM = """
import json, urllib.request
keys = json.load(urllib.request.urlopen("{url}"))
keys["SessionToken"] = keys.pop("Token")
print(json.dumps({{"Version": 1, **keys}}))
"""
_SIGNED = re.compile(r"Credential=LENT(\d+)/")


class KeyLender(HttpFront):
    """Keys end `ends_s` after they were lent; clients are to renew them after `renewed_s`.

    `used` lists the requests (method, path) that came with each key, `refused` those that came with one that had ended.
    `end_now` ends all keys at once, whatever was said about their end.
    """

    def __init__(self, target: str, *, renewed_s: float, ends_s: float) -> None:
        super().__init__(target)
        self.renewed_s, self.ends_s = renewed_s, ends_s
        self.used: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
        self.refused: list[tuple[str, str]] = []
        self._lent_at: list[float] = []
        self._lock = threading.Lock()

    @property
    def lent(self) -> int:
        return len(self._lent_at)

    def keys_for(self, method: str, part: str) -> set[int]:
        """The keys that came with requests whose path holds that."""
        with self._lock:
            return {n for n, sent in self.used.items() if any(m == method and part in path for m, path in sent)}

    def environment(self, folder: Path) -> dict[str, str]:
        """The variables by which processes find the keys, as in a container."""
        (folder / "authorization").write_text("let me in")
        return {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.endpoint}{_KEYS}",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(folder / "authorization"),
        }

    def environment_of_instance(self, folder: Path) -> dict[str, str]:
        """As `environment`, as on a machine that has a role."""
        return {"AWS_METADATA_ENDPOINT": self.endpoint}

    def environment_of_process(self, folder: Path) -> dict[str, str]:
        """As `environment`, of a profile whose keys a program prints."""
        (folder / "keys.py").write_text(_PROGRAM.format(url=f"{self.endpoint}{_KEYS}"))
        (folder / "config").write_text(f"[profile etl]\ncredential_process = {sys.executable} {folder}/keys.py\n")
        return {
            "AWS_PROFILE": "etl",
            "AWS_CONFIG_FILE": str(folder / "config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
        }

    def end_now(self) -> None:
        with self._lock:
            self._lent_at = [-math.inf] * len(self._lent_at)  # a clock that starts with the machine may be near 0

    def serve(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        lent = self._lent(request.command, request.path)
        if lent is not None:
            send(request, (200, {}, lent))
            return
        error = self._refusal(request)
        if error is not None:
            status, code = error
            text = "" if request.command == "HEAD" else f"<Error><Code>{code}</Code><Message>ended</Message></Error>"
            send(request, (status, {}, text.encode()))
            return
        send(request, self.asked(request.command, request.path, body, passed_on(request)))

    def lend(self) -> bytes:
        """The next keys, as JSON."""
        with self._lock:
            self._lent_at.append(time.monotonic())
            number = len(self._lent_at)
        end = datetime.now(UTC) + _ASKED_EARLY + timedelta(seconds=self.renewed_s)
        found = {
            "AccessKeyId": f"LENT{number}",
            "SecretAccessKey": f"{SECRET}-{number}",
            "Token": f"{TOKEN}-{number}",
            "Expiration": end.isoformat().replace("+00:00", "Z"),
        }
        return json.dumps(found).encode()

    def _lent(self, method: str, path: str) -> bytes | None:
        """What is answered to who asks for keys; None: nobody does."""
        if (method, path) == ("PUT", "/latest/api/token"):
            return b"a token"
        if path == _INSTANCE:
            return b"etl"
        if path in (_KEYS, f"{_INSTANCE}etl"):
            return self.lend()
        return None

    def _refusal(self, request: BaseHTTPRequestHandler) -> tuple[int, str] | None:
        signed = _SIGNED.search(request.headers.get("Authorization") or "")
        number = 0 if signed is None else int(signed[1])
        if request.headers.get("x-amz-security-token") != f"{TOKEN}-{number}":
            return 403, "InvalidToken"
        with self._lock:
            self.used[number].append((request.command, request.path))
            if time.monotonic() - self._lent_at[number - 1] <= self.ends_s:
                return None
            self.refused.append((request.command, request.path))
        return 400, "ExpiredToken"
