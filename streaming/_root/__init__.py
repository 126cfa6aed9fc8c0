"""bucketline: streams into Apache Paimon tables, and keeps them compacted.

Public names resolve lazily, so that importing the core imports neither pyspark nor each other.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "BucketlineError": "bucketline.conf.errors",
    "CommittedNotVisibleError": "bucketline.state.errors",
    "TableSink": "bucketline.streaming.sink",
    "WriteResult": "bucketline.state.store.write_result",
    "compact": "bucketline.streaming.procedures",
    "create_table": "bucketline.state.store.table",
    "open_table": "bucketline.state.store.table",
    "rescale": "bucketline.streaming.procedures",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'bucketline' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
