"""The columns of a DataFrame as Arrow columns, in the types in which Spark passes them to tasks. Timestamps are in UTC.
Source: PySpark 3.5 to 4.3 pyspark.sql.pandas.types.to_arrow_schema, which has large types from 4.0 on, and needs the
time zone from 4.3 on.
"""

from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

_PARAMETERS = signature(to_arrow_schema).parameters
_IN_UTC = {"timezone": "UTC"} if "timezone" in _PARAMETERS else {}


def frame_schema(frame: Any, *, has_large_types: bool = False) -> pa.Schema:
    """Returns the Arrow schema of a DataFrame. With `has_large_types`, strings and bytes have offsets of 64 bits (Spark
    3.5 lacks these types).
    """
    return arrow_schema(frame.schema, has_large_types=has_large_types)


def arrow_schema(columns: StructType, *, has_large_types: bool = False) -> pa.Schema:
    """Returns the columns of a schema of Spark as an Arrow schema. With `has_large_types`, strings and bytes have
    offsets of 64 bits (Spark 3.5 lacks these types).
    """
    large = {"prefers_large_types": has_large_types} if "prefers_large_types" in _PARAMETERS else {}
    return to_arrow_schema(columns, **large, **_IN_UTC)
