"""A request to stop comes from a signal, and a signal comes at any point of the very thread that waits."""

import sys
import threading
from types import FrameType
from typing import Any

from bucketline.state.store.plans.serve import Stop


def interrupted_at(line: int, stop: Stop) -> None:
    """Waits, and asks in the middle of it, before the line of Python with that number is run, as a handler would."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        if event == "line" and lines == line:
            stop.ask()
        return trace

    sys.settrace(trace)
    try:
        stop.wait_ms(5)
    finally:
        sys.settrace(None)


def test_a_handler_that_asks_while_its_own_thread_waits_never_blocks_it() -> None:
    for line in range(1, 40):
        stop = Stop()
        thread = threading.Thread(target=interrupted_at, args=(line, stop), daemon=True)
        thread.start()
        thread.join(20)
        assert not thread.is_alive(), line


def test_whoever_waits_is_woken_and_whoever_comes_later_does_not_wait() -> None:
    stop = Stop()
    threads = [threading.Thread(target=stop.wait_ms, args=(600_000,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert not stop.is_asked
    stop.ask()
    stop.ask()
    for thread in threads:
        thread.join(20)
    stop.wait_ms(600_000)
    assert stop.is_asked and not any(t.is_alive() for t in threads)
