"""Repeats a batch that needs a schema registry until the registry answers, or a time limit is reached."""

import logging
from collections.abc import Callable
from typing import TypeVar

from bucketline.conf.errors import BucketlineError
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.streaming.batch.failure import explain
from bucketline.streaming.decode.avro.registry_errors import RegistryDownError
from bucketline.streaming.decode.decode_step import DecodeStep
from bucketline.streaming.decode.decoder import Decoder

_LOG = logging.getLogger("bucketline.job")
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 1_000, 15_000

T = TypeVar("T")


def wait_of(decoder: Decoder | None) -> int:
    """Returns the time in milliseconds for which batches with that decoder wait for a schema registry."""
    registry = decoder.registry if isinstance(decoder, DecodeStep) else None
    return 0 if registry is None else registry.options.wait_ms


def when_registry_answers(
    work: Callable[[], T],
    wait_ms: int,
    world: World = SYSTEM_WORLD,
) -> T:
    """Calls `work` and returns its result. While `work` fails because the registry does not answer, `work` is called
    again.

    After `wait_ms`, raises the last error of `work`.
    """
    until: int | None = None
    pause_ms = _FIRST_PAUSE_MS
    while True:
        try:
            return work()
        except Exception as e:
            down = e if isinstance(e, BucketlineError) else explain(e)
            now_ms = world.stopwatch.elapsed_ms()
            until = now_ms + wait_ms if until is None else until
            if not isinstance(down, RegistryDownError) or now_ms + pause_ms > until:
                raise
            _LOG.warning("the batch waits until the schema registry answers: %s", down.message)
        world.pause.wait_ms(pause_ms)
        pause_ms = min(pause_ms * 2, _LONGEST_PAUSE_MS)
