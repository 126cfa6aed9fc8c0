"""Where Spark finds `format("bucketline")`: it imports all modules called `pyspark_*` and takes their `DefaultSource`.

An error here would be one of every Python data source of the session. So a package that is not whole is left out, with
a warning.
"""

import logging
from importlib import import_module

_SOURCE = "bucketline.streaming.reader.source"


def __getattr__(name: str) -> object:
    if name != "DefaultSource":
        raise AttributeError(f"module 'pyspark_bucketline' has no attribute {name!r}")
    try:
        return import_module(_SOURCE).BucketlineSource
    except ImportError as e:
        logging.getLogger(__name__).warning('format("bucketline") is left out: %s', e)
        raise AttributeError(str(e)) from e
