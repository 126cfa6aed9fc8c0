"""Where Spark finds `format("bucketline")`: it imports all modules called `pyspark_*` for their `DefaultSource`."""

from bucketline.streaming.reader.source import BucketlineSource as DefaultSource

__all__ = ["DefaultSource"]
