"""The longest chain of requests to storage of which each waits for the one before it.

On an object store this chain decides how long a batch waits, because requests that do not wait for each other are sent
at the same time.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from bucketline.state.store.storage.local_io import LocalIO

_CALLS = (
    "read", "read_optional", "write_new", "publish", "overwrite", "list_names", "exists", "delete", "open_input",
    "open_output",
)  # fmt: skip
_PAUSE_SECONDS = 0.01
"""The time that each request takes. Requests that are sent at the same time overlap, so each gets a thread."""


@dataclass
class Chain:
    """The requests that were seen. `names` holds the requests of one longest chain, first to last.

    A request waits for another one if the same thread has sent it, or a thread that has ended since, or a thread that
    has started the sender, directly or through other threads.
    """

    names: tuple[str, ...] = ()
    parents: dict[threading.Thread, threading.Thread] = field(default_factory=dict)
    """The thread that started each thread."""
    _by_thread: dict[threading.Thread, tuple[str, ...]] = field(default_factory=dict)
    _published: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return len(self.names)

    def begin(self, name: str, path: str) -> tuple[str, ...]:
        """The chain that ends with this request."""
        above = [threading.current_thread()]
        while (parent := self.parents.get(above[-1])) is not None:
            above.append(parent)
        with self._lock:
            before = [c for thread, c in self._by_thread.items() if thread in above or not thread.is_alive()]
            return (*max(before, key=len, default=()), f"{name} {path}")

    def end(self, chain: tuple[str, ...]) -> None:
        """Notes that the request that ends this chain is answered."""
        with self._lock:
            self._by_thread[threading.current_thread()] = chain
            self.names = max(self.names, chain, key=len)

    def is_free(self, name: str, path: str) -> bool:
        """Whether only a local disk is asked this. An object store is not asked for files that a commit has just
        written (FilesProof).
        """
        if name == "publish":
            self._published.add(path)
        return name == "exists" and ("/manifest/" in path or path in self._published)


@contextmanager
def request_chain() -> Iterator[Chain]:
    """Inside, local storage says that it answers late, and each of its requests takes a moment."""
    seen, originals = Chain(), {name: getattr(LocalIO, name) for name in _CALLS}

    def counted(name: str) -> Callable[..., Any]:
        def call(self: LocalIO, path: str, *args: Any) -> Any:
            if seen.is_free(name, path):
                return originals[name](self, path, *args)
            chain = seen.begin(name, path)
            time.sleep(_PAUSE_SECONDS)
            try:
                return originals[name](self, path, *args)
            finally:
                seen.end(chain)

        return call

    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        seen.parents[thread] = threading.current_thread()
        start(thread)

    calls: dict[str, Any] = {name: counted(name) for name in _CALLS}
    is_far = patch.object(LocalIO, "answers_late", True, create=True)
    with is_far, patch.object(threading.Thread, "start", started), patch.multiple(LocalIO, **calls):
        yield seen
