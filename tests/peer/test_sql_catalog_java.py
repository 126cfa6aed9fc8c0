"""Paimon Java and bucketline share a JDBC catalog in SQLite."""

from pathlib import Path

import pyarrow as pa
import pytest

import bucketline as bl
from tests.support.peers.peer import PaimonCatalogs, PeerError

pytestmark = pytest.mark.peer


def rows(*found: tuple[int, str]) -> pa.Table:
    return pa.table({"id": [i for i, _ in found], "v": [v for _, v in found]})


def test_java_and_we_see_each_others_databases_tables_and_rows(paimon_catalogs: PaimonCatalogs, tmp_path: Path) -> None:
    options = {
        "metastore": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        "warehouse": f"{tmp_path}/w",
        "lock.enabled": "true",
    }
    java, ours = paimon_catalogs, bl.catalog(options)
    java.do("open", options=options)
    java.do("create-database", database="shop")
    ours.create_database("depot")
    assert sorted(java.do("databases")["names"]) == ours.list_databases() == ["depot", "shop"]

    java.do("create", table="shop.theirs", options={"bucket": "1"})
    ours.create_table("shop.ours", "id BIGINT NOT NULL, v STRING", ["id"], options={"bucket": "1"})
    assert sorted(java.do("tables", database="shop")["names"]) == ours.list_tables("shop") == ["ours", "theirs"]
    with pytest.raises(PeerError, match="already exists"):
        java.do("create", table="shop.ours", options={})
    with pytest.raises(bl.OptionError, match="already exists"):
        ours.create_table("shop.theirs", "id BIGINT")

    for name in ("shop.theirs", "shop.ours"):
        java.do("write", table=name, rows=[[1, "java"], [2, "java"]])
        ours.table(name).write(rows((2, "ours"), (3, "ours")))
        java.do("write", table=name, rows=[[3, "java again"]])
        read = sorted(map(tuple, java.do("read", table=name)["rows"]))
        assert read == [(1, "java"), (2, "ours"), (3, "java again")]
        table = ours.table(name).to_arrow()
        assert sorted(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True)) == read

    java.do("add-column", table="shop.ours", column="a")
    ours.table("shop.ours").add_column("b", "INT")
    assert java.do("columns", table="shop.ours")["names"] == ["id", "v", "a", "b"]
    ours.rename_table("shop.theirs", "depot.theirs")
    java.do("rename", table="shop.ours", to="depot.ours")
    assert ours.list_tables("depot") == sorted(java.do("tables", database="depot")["names"]) == ["ours", "theirs"]
    assert ours.table("depot.ours").to_arrow().num_rows == len(java.do("read", table="depot.theirs")["rows"]) == 3
    java.do("drop", table="depot.theirs")
    ours.drop_table("depot.ours")
    ours.drop_database("depot")
    java.do("drop-database", database="shop")
    assert ours.list_databases() == java.do("databases")["names"] == []
