"""Gives a dataset to other libraries as their own kind of table: a LazyFrame of Polars, a relation of DuckDB."""

from importlib import import_module
from typing import Any

from bucketline.conf.errors import OptionError
from bucketline.state.store.table.view.dataset import TableDataset


def as_polars(dataset: TableDataset) -> Any:
    """Returns the dataset as a LazyFrame. Raises OptionError if Polars is not installed."""
    try:
        polars = import_module("polars")
    except ImportError as e:
        raise OptionError("to_polars needs Polars: pip install polars", key="polars") from e
    return polars.scan_pyarrow_dataset(dataset)


def as_duckdb(dataset: TableDataset, con: Any, name: str) -> Any:
    """Makes the dataset a view of a DuckDB connection, and returns it as a relation."""
    con.register(name, dataset)
    return con.view(name)


def own_name(uri: str) -> str:
    """Returns the table's name, which is the last folder of its path."""
    return uri.rstrip("/").rsplit("/", 1)[-1]
