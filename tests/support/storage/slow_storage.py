"""Local storage that answers late, as an object store far away does; other threads go on meanwhile."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from bucketline.state.store.storage.local_io import LocalIO

_CALLS = (
    "read", "read_optional", "read_unchanging", "write_new", "publish", "overwrite", "list_names", "exists", "delete",
    "open_input", "open_output",
)  # fmt: skip


@contextmanager
def slow_storage(seconds: float, *, is_far: bool = False) -> Iterator[None]:
    """Inside, each call of local storage takes at least so long. With `is_far` it says that it answers late; whether a
    file exists costs nothing then, since an object store is not asked that often."""
    originals = {name: getattr(LocalIO, name) for name in _CALLS if not is_far or name != "exists"}

    def late(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: LocalIO, *args: Any) -> Any:
            time.sleep(seconds)
            return original(self, *args)

        return call

    slow: dict[str, Any] = {name: late(original) for name, original in originals.items()}
    with patch.object(LocalIO, "answers_late", is_far, create=True), patch.multiple(LocalIO, **slow):
        yield
