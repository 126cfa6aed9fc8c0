"""Metadata files are decoded once in a world: their bytes never change, and what they hold is frozen values."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any
from unittest.mock import patch

from bucketline.state.format.index import index_manifest
from bucketline.state.format.json_files import snapshot_json
from bucketline.state.store.catalog import manifests, newest_snapshot, snapshot_file

_KEPT = 4096


@contextmanager
def decoded_once() -> Iterator[None]:
    """While the block runs, equal bytes of manifests and snapshots are decoded once."""
    with ExitStack() as stack:
        snapshot = lru_cache(_KEPT)(snapshot_json.decode_snapshot)
        for module in (snapshot_file, newest_snapshot):
            stack.enter_context(patch.object(module, "decode_snapshot", snapshot))
        for name in ("decode_manifest", "decode_manifest_list"):
            stack.enter_context(patch.object(manifests, name, _listed(getattr(manifests, name))))
        stack.enter_context(
            patch.object(manifests, "decode_index_manifest", _listed(index_manifest.decode_index_manifest))
        )
        yield


def _listed(decode: Callable[[bytes], list[Any]]) -> Callable[[bytes], list[Any]]:
    """As `decode`, with a list of its own for each caller."""
    once = lru_cache(_KEPT)(lambda data: tuple(decode(data)))
    return lambda data: list(once(data))
