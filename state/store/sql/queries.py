"""Where the rows of a query come from: this process, or a Spark session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from bucketline.state.sql.statement import Query
from bucketline.state.store.engine.engine import Engine
from bucketline.state.store.engine.local_engine import LOCAL_ENGINE
from bucketline.state.store.sql.select import run_select
from bucketline.state.store.sql.session import SqlSession
from bucketline.state.store.table.table import Table
from bucketline.state.store.table.write_result import WriteResult


@dataclass(frozen=True, slots=True)
class Columns:
    """How the columns of a query become those of a table: by position (`names`), or by their own names (None). Other
    columns of the table get the constants, or are null."""

    names: Sequence[str] | None
    constants: Mapping[str, pa.Scalar]


class Queries(Protocol):
    """What statements leave to whoever runs queries."""

    @property
    def engine(self) -> Engine:
        """What does the work of compactions and rescales."""
        ...

    def rows(self, session: SqlSession, query: Query) -> pa.RecordBatchReader:
        """The rows of a query. Raises OptionError for one that is not supported here."""
        ...

    def check(self, session: SqlSession, query: Query) -> None:
        """Returns if a query can be run. Raises as `rows`."""
        ...

    def write(self, session: SqlSession, query: Query, table: Table, columns: Columns) -> WriteResult | None:
        """Writes the rows of a query where they are computed; None where they have to come to this process."""
        ...

    def set_option(self, key: str, value: str) -> bool:
        """Sets an option of the queries' own; False for one that is none."""
        ...


class LocalQueries:
    """Queries in this process: one table, no joins."""

    engine: Engine = LOCAL_ENGINE

    def rows(self, session: SqlSession, query: Query) -> pa.RecordBatchReader:
        return run_select(session, query)

    def check(self, session: SqlSession, query: Query) -> None:
        run_select(session, query, reads=False)

    def write(self, session: SqlSession, query: Query, table: Table, columns: Columns) -> WriteResult | None:
        del session, query, table, columns
        return None

    def set_option(self, key: str, value: str) -> bool:
        del key, value
        return False


LOCAL_QUERIES = LocalQueries()
