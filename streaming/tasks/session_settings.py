"""Changes a setting of a Spark session for the time of a `with` block. Several threads may run jobs in the session and
change the same setting: the former value comes back when the last of their blocks ends.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any


@dataclass(slots=True)
class _Held:
    """A setting that `with` blocks have changed for a time: the value before the first block, and the number of blocks
    that use another value now.
    """

    before: str
    count: int = 0


_held: dict[tuple[Any, str], _Held] = {}
_lock = Lock()


@contextmanager
def held_setting(spark: Any, key: str, value: str, default: str | None = None) -> Iterator[None]:
    """Sets the setting to `value` inside of the block. When the last of all blocks that set this key ends, the former
    value is restored.

    All blocks that set a key at the same time must set it to the same value. `default` is the former value if the
    session has no such setting.
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
