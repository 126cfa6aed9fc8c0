"""Spark's classes for data sources in Python, which exist from Spark 4.0 on. On 3.5 empty classes stand for them, and
`bl.read` reads tables.
"""

try:
    from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
except ImportError:
    HAS_DATA_SOURCES = False

    class DataSource:  # type: ignore[no-redef]
        """Stands for Spark's class of that name."""

    class DataSourceReader:  # type: ignore[no-redef]
        """Stands for Spark's class of that name."""

    class DataSourceStreamReader:  # type: ignore[no-redef]
        """Stands for Spark's class of that name."""

    class InputPartition:  # type: ignore[no-redef]
        """Stands for Spark's class of that name."""

else:
    HAS_DATA_SOURCES = True

__all__ = ["HAS_DATA_SOURCES", "DataSource", "DataSourceReader", "DataSourceStreamReader", "InputPartition"]
