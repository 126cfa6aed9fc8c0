"""Settings of a Spark session that hold for a moment, whichever threads run jobs in it at the same time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any


@dataclass(slots=True)
class _Held:
    """What a session said before, and by how many blocks it says otherwise now."""

    before: str
    count: int = 0


_held: dict[tuple[Any, str], _Held] = {}
_lock = Lock()


@contextmanager
def held_setting(spark: Any, key: str, value: str, default: str | None = None) -> Iterator[None]:
    """Inside, the session says `value`. Once the last of the blocks that hold it is left, it says what it said before.

    All who hold a key want the same value of it. `default` is what a session says that has no such setting.
    """
    place = spark._jsparkSession, key
    with _lock:
        held = _held.get(place)
        if held is None:
            held = _Held(spark.conf.get(key) if default is None else spark.conf.get(key, default))
            spark.conf.set(key, value)
            _held[place] = held
        held.count += 1
    try:
        yield
    finally:
        with _lock:
            held.count -= 1
            if not held.count:
                del _held[place]
                spark.conf.set(key, held.before)
