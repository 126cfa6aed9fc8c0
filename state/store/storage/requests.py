"""Counts the requests that a process has sent to a store, by kind."""

from dataclasses import dataclass, replace
from enum import Enum
from threading import Lock


class RequestKind(Enum):
    """The kinds of requests for which stores charge different prices."""

    GET = "get"
    PUT = "put"
    LIST = "list"
    HEAD = "head"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Numbers of requests, by kind. Each page of a listing, and each part of an upload, counts as one request. A
    request that a client repeats counts once.
    """

    get: int = 0
    put: int = 0
    list: int = 0
    head: int = 0
    delete: int = 0

    @property
    def total(self) -> int:
        return self.get + self.put + self.list + self.head + self.delete

    def since(self, before: "RequestCounts") -> "RequestCounts":
        """Returns the differences between these counts and the earlier counts `before`."""
        return RequestCounts(
            self.get - before.get,
            self.put - before.put,
            self.list - before.list,
            self.head - before.head,
            self.delete - before.delete,
        )


class RequestCounter:
    """A counter of requests, which several threads may use."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = RequestCounts()

    def add(self, kind: RequestKind, count: int = 1) -> None:
        with self._lock:
            self._counts = replace(self._counts, **{kind.value: getattr(self._counts, kind.value) + count})

    @property
    def counts(self) -> RequestCounts:
        """Returns the number of requests so far."""
        return self._counts
