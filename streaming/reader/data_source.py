"""Spark's base classes for data sources in Python. They exist from Spark 4.0 on; on Spark 3.5 empty classes replace
them, and `bl.read` reads tables.
"""

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
except ImportError:
    HAS_DATA_SOURCES = False

    class DataSource:  # type: ignore[no-redef]
        """Stands for Spark's class `DataSource`, which Spark 3.5 does not have, so that subclasses can be defined."""

    class DataSourceReader:  # type: ignore[no-redef]
        """Replaces Spark's class of the same name on Spark 3.5."""

    class DataSourceStreamReader:  # type: ignore[no-redef]
        """Replaces Spark's class of the same name on Spark 3.5."""

    class InputPartition:  # type: ignore[no-redef]
        """Replaces Spark's class of the same name on Spark 3.5."""

else:
    HAS_DATA_SOURCES = True

__all__ = ["HAS_DATA_SOURCES", "DataSource", "DataSourceReader", "DataSourceStreamReader", "InputPartition"]
