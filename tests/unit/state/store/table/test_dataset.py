"""A table as a dataset: DuckDB, Polars and pyarrow read of it what they need, and see the rows that a read gives."""

import datetime
import pickle
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

import bucketline as bl
from tests.support.storage.counted_reads import CountingIO, counted

COLUMNS = """id BIGINT NOT NULL, name STRING, amount DECIMAL(10, 2), ratio DOUBLE, moment TIMESTAMP(6), raw BYTES,
    tags ARRAY<STRING>, counts MAP<STRING, INT>, place ROW<city STRING>, day DATE"""


def rows(ids: range, note: str = "n") -> pa.Table:
    count = len(ids)
    return pa.table(
        {
            "id": list(ids),
            "name": [None if i % 7 == 0 else f"{note}{i}" for i in ids],
            "amount": pa.array([Decimal(i) / 4 for i in ids], pa.decimal128(10, 2)),
            "ratio": [float("nan") if i == 5 else i / 2 for i in ids],
            "moment": [datetime.datetime(2026, 1, 1) + datetime.timedelta(hours=i) for i in ids],
            "raw": [bytes([i % 256]) for i in ids],
            "tags": pa.array([[f"t{i}"] for i in ids], pa.list_(pa.string())),
            "counts": pa.array([[("a", i)] for i in ids], pa.map_(pa.string(), pa.int32())),
            "place": pa.array([{"city": f"c{i}"} for i in ids], pa.struct([("city", pa.string())])),
            "day": [datetime.date(2026, 1, 1)] * count,
        }
    )


def made(folder: Path, **options: str) -> bl.Table:
    """A table whose rows need a merge: some were written twice, and one was deleted."""
    table = bl.create_table(f"{folder}/shop.db/orders", COLUMNS, ["id"], options={"bucket": "2", **options})
    table.write(rows(range(30)))
    table.write(rows(range(20, 50), "new"))
    table.delete("id = 3")
    return table


KINDS = {
    "merge on read": {},
    "deletion vectors": {"deletion-vectors.enabled": "true"},
    "lookup": {"changelog-producer": "lookup"},
}


@pytest.fixture(params=KINDS, ids=str)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> bl.Table:
    return made(tmp_path, **KINDS[request.param])


def ids(found: pa.Table | pl.DataFrame) -> list[int]:
    return sorted(found["id"].to_list() if isinstance(found, pl.DataFrame) else found["id"].to_pylist())


CONDITIONS = [
    "id > 40",
    "id IN (3, 4, 5, 21)",
    "name LIKE 'new3%' AND amount > 8.5",
    "name IS NULL OR id = 1",
    "moment >= TIMESTAMP '2026-01-02 00:00:00' AND day = DATE '2026-01-01'",
    "ratio < 4 OR NOT (id < 45)",
]


def test_duckdb_finds_the_rows_that_a_read_of_the_table_finds(table: bl.Table) -> None:
    con = duckdb.connect()
    table.to_duckdb(con)
    for where in CONDITIONS:
        found = con.sql(f"SELECT id, name, amount FROM orders WHERE {where} ORDER BY id").fetchall()
        wanted = table.to_arrow(["id", "name", "amount"], where).sort_by("id")
        assert found == [tuple(row.values()) for row in wanted.to_pylist()] != []


def test_polars_finds_the_rows_that_a_read_of_the_table_finds(table: bl.Table) -> None:
    lazy = table.to_polars()
    for condition, where in (
        (pl.col("id") > 40, "id > 40"),
        (pl.col("id").is_in([3, 4, 21]), "id IN (3, 4, 21)"),
        ((pl.col("amount") > Decimal("8.50")) & pl.col("name").is_not_null(), "amount > 8.5 AND name IS NOT NULL"),
        (pl.col("name").str.starts_with("new3"), "name LIKE 'new3%'"),
        (pl.col("moment") >= datetime.datetime(2026, 1, 2), "moment >= TIMESTAMP '2026-01-02 00:00:00'"),
    ):
        assert ids(lazy.filter(condition).collect()) == ids(table.to_arrow(filter=where)) != []
    assert lazy.select(pl.len()).collect().item() == 49


def test_values_of_every_kind_come_to_duckdb_polars_and_pandas_as_they_are(table: bl.Table) -> None:
    plain = table.to_arrow().sort_by("id")
    con = duckdb.connect()
    (row,) = table.to_duckdb(con).filter("id = 21").fetchall()
    assert row[0] == 21 and row[2] == Decimal("5.25") and row[8] == {"city": "c21"}
    assert row[7] == {"a": 21} and row[6] == ["t21"] and row[5] == bytes([21])
    frame = table.to_polars().collect().sort("id")
    for name in ("id", "name", "amount", "moment", "raw", "tags", "place", "day"):
        assert frame[name].to_list() == plain[name].to_pylist()
    assert table.to_pandas().sort_values("id")["name"].tolist() == plain["name"].to_pylist()
    assert table.to_pandas(["id"], "id < 3", limit=2).shape == (2, 1)


def test_a_dataset_shows_one_snapshot_whatever_is_committed_later(tmp_path: Path) -> None:
    table = made(tmp_path)
    now, first, tagged = table.dataset(), table.dataset(1), table.create_tag("t", 2)
    tagged = table.dataset("t")
    con = duckdb.connect()
    view = table.to_duckdb(con, "seen")
    table = table.add_column("note", "STRING")
    table.write(rows(range(100, 120)).append_column("note", pa.array(["x"] * 20)))
    assert [d.count_rows() for d in (now, first, tagged)] == [49, 30, 50]
    assert view.count("*").fetchall() == [(49,)] == con.sql("SELECT count(*) FROM seen").fetchall()
    again = pickle.loads(pickle.dumps(now))
    assert str(again.to_table()) == str(now.to_table()) and "note" not in again.schema.names
    assert table.dataset().count_rows() == 69 and table.dataset(2).schema == now.schema
    assert table.to_polars(snapshot=1).collect().height == 30


def test_postponed_rows_and_a_fallback_branch_are_in_a_dataset_as_in_a_read(tmp_path: Path) -> None:
    postponed = bl.create_table(
        f"{tmp_path}/shop.db/p",
        "id BIGINT NOT NULL, v INT",
        ["id"],
        options={"bucket": "-2", "postpone.merge-on-read": "true", "postpone.batch-write-fixed-bucket": "false"},
    )
    postponed.write(pa.table({"id": [1, 2], "v": pa.array([1, 2], pa.int32())}))
    assert postponed.dataset().to_table().equals(postponed.to_arrow()) and postponed.dataset().count_rows() == 2
    split = bl.create_table(
        f"{tmp_path}/shop.db/s", "id BIGINT NOT NULL, day INT", ["id", "day"], ["day"], options={"bucket": "1"}
    )
    split.create_branch("old")
    old = bl.open_table(split.path, options={"branch": "old"})
    old.write(pa.table({"id": [1, 2], "day": pa.array([1, 2], pa.int32())}))
    split.write(pa.table({"id": [7], "day": pa.array([2], pa.int32())}))
    both = bl.open_table(split.path, options={"scan.fallback-branch": "old"}).dataset()
    assert ids(both.to_table()) == [1, 7] == ids(pickle.loads(pickle.dumps(both)).filter(pc.field("id") < 9).to_table())


def test_system_tables_are_datasets_too(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.compact()
    for name in ("files", "snapshots", "partitions", "options", "audit_log", "binlog", "ro"):
        check_system_table(table, name)


def check_system_table(table: bl.Table, name: str) -> None:
    found, wanted = table.dataset(system=name), table.system(name)
    assert str(found.to_table().to_pylist()) == str(wanted.to_pylist()) and found.schema == wanted.schema
    first = wanted.schema.names[0]
    assert found.to_table([first]).column_names == [first] and found.head(1).num_rows == 1
    assert found.count_rows(pc.field(first).is_null()) == wanted.filter(pc.field(first).is_null()).num_rows
    assert duckdb.sql("SELECT count(*) FROM found").fetchall() == [(wanted.num_rows,)]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[bl.Table, CountingIO]:
    """Six days in a file each, of three columns that cost much."""
    path = f"{tmp_path_factory.mktemp('wide')}/shop.db/wide"
    table = bl.create_table(path, "id BIGINT NOT NULL, a STRING, b STRING, day INT NOT NULL", partition_by=["day"])
    chance, count = np.random.default_rng(7), 30_000
    for day in range(6):
        texts = [[f"{x:x}" for x in chance.integers(0, 1 << 60, count)] for _ in "ab"]
        first = np.arange(day * count, (day + 1) * count)
        days = pa.array(np.full(count, day, np.int32))
        table.write(pa.table({"id": first, "a": texts[0], "b": texts[1], "day": days}))
    return counted(table)


def test_only_the_bytes_that_a_query_needs_are_read(wide: tuple[bl.Table, CountingIO]) -> None:
    table, reads = wide
    con = duckdb.connect()
    table.to_duckdb(con)
    lazy, dataset = table.to_polars(), table.dataset()

    def cost(query: Callable[[], object]) -> float:
        reads.read_bytes.clear()
        query()
        return reads.total

    whole = cost(lambda: dataset.to_table())
    assert whole > 3 << 20
    cheap: dict[str, Callable[[], object]] = {
        "a column": lambda: con.sql("SELECT sum(id) FROM wide").fetchall(),
        "a partition": lambda: con.sql("SELECT a FROM wide WHERE day = 3").fetchall(),
        "a key": lambda: con.sql("SELECT a, b FROM wide WHERE id = 70000").fetchall(),
        "no column": lambda: con.sql("SELECT count(*) FROM wide").fetchall(),
        "a relation": lambda: con.view("wide").filter("day = 3").project("id").fetchall(),
        "a column in Polars": lambda: lazy.select("id").collect(),
        "a partition in Polars": lambda: lazy.filter(pl.col("day") == 3).select("a").collect(),
        "a key in Polars": lambda: lazy.filter(pl.col("id") == 70000).collect(),
        "a limit in Polars": lambda: lazy.select("a").head(3).collect(),
        "a head": lambda: dataset.head(3, ["a"]),
        "a computed column": lambda: dataset.to_table({"twice": pc.field("id") * 2}),
        "a scanner's filter": lambda: dataset.scanner(["a"], pc.field("day") == 3).to_table(),
        "SQL text": lambda: dataset.count_rows("day = 3"),
        "a filtered dataset": lambda: dataset.filter(pc.field("day") == 3).filter(pc.field("id") > 0).to_table(),
        # The last: Arrow's threads may read another batch after the query has ended.
        "a limit": lambda: con.sql("SELECT a FROM wide LIMIT 3").fetchall(),
    }
    costs = {name: cost(query) / whole for name, query in cheap.items()}
    assert {name: share for name, share in costs.items() if share > 0.4} == {}


def test_a_stream_is_a_full_scan_and_has_all_rows(wide: tuple[bl.Table, CountingIO]) -> None:
    table, reads = wide
    assert pa.table(table).num_rows == 180_000 == pl.DataFrame(table.dataset()).height
    reads.read_bytes.clear()
    found = duckdb.sql('SELECT count(*) FROM "table" WHERE day = 3').fetchall()
    assert found == [(30_000,)] and reads.total > 3 << 20
    reader = table.to_reader(["day"], "id < 10")
    assert isinstance(reader, pa.RecordBatchReader) and reader.read_all().num_rows == 10


def test_what_arrow_does_with_datasets_works_or_is_refused(tmp_path: Path) -> None:
    found = made(tmp_path).dataset()
    assert isinstance(found, ds.Dataset)
    assert found.to_table({"x": pc.field("id") + 1, "n": pc.field("name")}, filter=pc.field("id") == 4).to_pylist() == [
        {"x": 5, "n": "n4"}
    ]
    assert {b.num_rows for b in found.to_batches(["id"], batch_size=4)} <= {1, 2, 3, 4}
    assert found.take(pa.array([0, 1]), ["id"]).equals(found.head(2, ["id"]))
    ds.write_dataset(found, tmp_path / "copy", format="parquet")
    assert ds.dataset(tmp_path / "copy").count_rows() == 49
    assert found.sort_by("id").to_table()["id"].to_pylist() == ids(found.to_table())
    plain = bl.create_table(f"{tmp_path}/shop.db/plain", "id BIGINT NOT NULL", ["id"], options={"bucket": "1"})
    plain.write(pa.table({"id": range(5)}))
    few = plain.dataset().filter(pc.field("id") < 2)
    assert few.join(few, "id", join_type="left semi").to_table().num_rows == 2
    with pytest.raises(bl.UnsupportedTableError, match="no fragments"):
        found.get_fragments()
    with pytest.raises(bl.UnsupportedTableError, match="cannot have another schema"):
        found.replace_schema(pa.schema([]))
    with pytest.raises(FileNotFoundError, match="by its methods scanner"):
        ds.Scanner.from_dataset(found).to_table()
    with pytest.raises(bl.OptionError, match="fragment_scan_options"):
        found.to_table(fragment_scan_options=object())
    with pytest.raises(bl.SchemaMismatchError, match="Arrow expression"):
        found.filter("id = 1")  # type: ignore[arg-type]
    for bad in ({"x": pc.field("nobody")}, ["nobody"]):
        with pytest.raises(bl.SchemaMismatchError):
            found.to_table(bad)
    with pytest.raises(bl.OptionError, match="at least one row"):
        found.to_table(batch_size=0)


def test_a_dataset_of_nothing_has_its_columns(tmp_path: Path) -> None:
    table = bl.create_table(f"{tmp_path}/shop.db/t", "id BIGINT NOT NULL, v INT", ["id"], options={"bucket": "1"})
    assert table.dataset().to_table().schema == table.schema
    assert table.to_polars().collect().shape == (0, 2)
    table.to_duckdb(con := duckdb.connect())
    assert con.sql("SELECT * FROM t").fetchall() == []
    with pytest.raises(bl.OptionError, match="snapshot"):
        table.dataset(3)
    with pytest.raises(bl.OptionError, match=r"scan\.snapshot-id"):
        table.dataset(1, system="files")
    with pytest.raises(bl.OptionError, match="there is no system table"):
        table.dataset(system="nobody")
