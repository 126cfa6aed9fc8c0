"""A proxy before a store: it forwards requests, and treats chosen ones in each way that networks and stores can."""

from collections.abc import Callable
from enum import Enum
from http.server import BaseHTTPRequestHandler
from threading import Event, Lock
from types import TracebackType

from tests.support.servers.http_front import Answer, HttpFront, passed_on, send

DELAY_S = 0.02


class Trouble(Enum):
    """What becomes of a request."""

    ANSWER_LOST = "the store does it, and the connection ends without an answer"
    REQUEST_LOST = "the connection ends before the store hears of it"
    REPEATED = "the store gets it twice, and the second answer is given"
    CONFLICT = "409, and the store does not hear of it"
    CONDITION_FAILED = "412, and the store does not hear of it"
    BROKEN_AFTER = "the store does it, and the answer is 500"
    BROKEN_BEFORE = "500, and the store does not hear of it"
    BUSY = "503, and the store does not hear of it"
    FORBIDDEN = "403, and the store does not hear of it"
    LATE = "the answer takes a while"
    CONDITION_IGNORED = "the store does not hear of the condition"


_ANSWERS = {
    Trouble.CONFLICT: (409, "ConditionalRequestConflict"),
    Trouble.CONDITION_FAILED: (412, "PreconditionFailed"),
    Trouble.BROKEN_BEFORE: (500, "InternalError"),
    Trouble.BUSY: (503, "SlowDown"),
    Trouble.FORBIDDEN: (403, "AccessDenied"),
}

Choose = Callable[[str, str], Trouble | None]
"""(method, path) of a request -> what becomes of it; None: nothing special"""


class FaultProxy(HttpFront):
    """Forwards to the server at `target`; `choose` is asked for each request, one at a time, and may be replaced.

    `done` lists the requests that were treated so, `signed` how each request was signed.
    """

    def __init__(self, target: str, choose: Choose) -> None:
        super().__init__(target)
        self.choose = choose
        self.done: list[tuple[str, str, Trouble]] = []
        self.signed: list[str] = []
        self._lock = Lock()
        self._ended = Event()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        super().__exit__(kind, error, at)

    def serve(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        with self._lock:
            self.signed.append(request.headers.get("Authorization") or "")
            trouble = self.choose(request.command, request.path)
            if trouble is not None:
                self.done.append((request.command, request.path, trouble))
        if trouble is Trouble.REQUEST_LOST:
            request.close_connection = True
            return
        if trouble in _ANSWERS:
            status, code = _ANSWERS[trouble]
            send(request, (status, {}, f"<Error><Code>{code}</Code><Message>by the proxy</Message></Error>".encode()))
            return
        if trouble is Trouble.LATE:
            self._ended.wait(DELAY_S)
        answer = self._forward(request, body, trouble)
        if trouble is Trouble.REPEATED:
            answer = self._forward(request, body, trouble)
        if trouble is Trouble.ANSWER_LOST:
            request.close_connection = True
            return
        if trouble is Trouble.BROKEN_AFTER:
            answer = 500, {}, b"<Error><Code>InternalError</Code></Error>"
        send(request, answer)

    def _forward(self, request: BaseHTTPRequestHandler, body: bytes, trouble: Trouble | None) -> Answer:
        # The signature of a request counts for the host that the client has named.
        headers = {**passed_on(request), "Host": request.headers["Host"]}
        if trouble is Trouble.CONDITION_IGNORED:
            headers = {k: v for k, v in headers.items() if k.lower() != "if-none-match"}
        return self.asked(request.command, request.path, body, headers)
