"""Paimon's own REST server, the one of its tests, with Paimon Java and bucketline as its clients."""

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from tests.support.peers.peer import PaimonCatalogs, PeerError

pytestmark = pytest.mark.stores

TOKEN = "some-bearer-token"
COLUMNS = "id BIGINT NOT NULL, v STRING"


def rows(*found: tuple[int, str]) -> pa.Table:
    return pa.table({"id": pa.array([i for i, _ in found], pa.int64()), "v": [v for _, v in found]})


def read(table: bl.Table) -> list[tuple[int, str]]:
    found = table.to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def test_paimons_server_java_and_we_agree(paimon_catalogs: PaimonCatalogs, tmp_path: Path) -> None:
    java = paimon_catalogs
    uri = java.do("serve-rest", folder=str(tmp_path / "lake"), token=TOKEN)["uri"]
    options = {"metastore": "rest", "uri": uri, "token": TOKEN, "token.provider": "bear", "warehouse": "lake"}
    java.do("open", options=options)
    ours = bl.catalog(options)
    with pytest.raises(bl.StorageError, match="401"):
        bl.catalog({**options, "token": "a-wrong-token"}).list_databases()

    java.do("create-database", database="shop")
    ours.create_database("depot")
    with pytest.raises(OptionError, match="already exists"):
        ours.create_database("shop")
    assert sorted(java.do("databases")["names"]) == ours.list_databases() == ["depot", "shop"]
    java.do("create", table="shop.theirs", options={"bucket": "1"})
    ours.create_table("shop.ours", COLUMNS, ["id"], options={"bucket": "1"})
    assert ours.list_tables("shop") == sorted(java.do("tables", database="shop")["names"]) == ["ours", "theirs"]
    with pytest.raises(OptionError, match="already exists"):
        ours.create_table("shop.theirs", COLUMNS, ["id"])
    with pytest.raises(bl.TableNotFoundError):
        ours.table("shop.nobody")

    for name in ("shop.theirs", "shop.ours"):
        ours.table(name).write(rows((1, "ours"), (2, "ours")))
        java.do("write", table=name, rows=[[2, "java"], [3, "java"]])
        table = ours.table(name)
        table.write(rows((3, "ours again")))
        assert table.compact() == java.do("latest", table=name)["snapshot"]
        expected = [(1, "ours"), (2, "java"), (3, "ours again")]
        assert read(table) == sorted(map(tuple, java.do("read", table=name)["rows"])) == expected
        assert table.doctor(rows=True) == []

    table = ours.table("shop.ours")
    java.do("add-column", table="shop.ours", column="a")
    changed = table.add_column("b", "INT", comment="ours", position="after v").rename_column("a", "c")
    changed = changed.alter_column("c", type="BIGINT").set_options({"snapshot.num-retained.max": "20"})
    changed = changed.alter(bl.SetTableComment("orders"))
    assert java.do("columns", table="shop.ours")["names"] == changed.schema.names == ["id", "v", "b", "c"]
    assert (changed.comment, changed.options["snapshot.num-retained.max"]) == ("orders", "20")
    assert str(changed.schema.field("c").type) == "int64"
    assert changed.drop_column("b").drop_column("c").schema.names == ["id", "v"]
    with pytest.raises(bl.BucketlineError):
        changed.add_column("id", "STRING")

    table = ours.table("shop.ours")
    before = java.do("latest", table="shop.ours")["snapshot"]
    java.do("lose-answer")
    assert table.write(rows((5, "once"))) == before + 1 == java.do("latest", table="shop.ours")["snapshot"]
    assert read(table)[-1] == (5, "once") and len(read(table)) == 4
    newest = java.do("latest", table="shop.ours")["snapshot"]
    table.create_tag("kept", newest, timedelta(days=1))
    table.create_tag("other")
    with pytest.raises(OptionError, match="already exists"):
        table.create_tag("kept")
    assert sorted(java.do("tags", table="shop.ours")["names"]) == ["kept", "other"]
    assert table.delete_tag("other") and java.do("tags", table="shop.ours")["names"] == ["kept"]
    _branches(java, ours)
    table.write(rows((9, "to be taken back")))
    assert table.rollback_to(newest) == newest == java.do("latest", table="shop.ours")["snapshot"]
    assert (9, "to be taken back") not in read(table)
    with pytest.raises(OptionError, match="doesn't exist"):
        table.rollback_to(99)
    assert table.write(rows((4, "after"))) == newest + 1
    table.expire_snapshots(retain_min=1, retain_max=1, older_than=timedelta(0))
    assert len(java.do("read", table="shop.ours")["rows"]) == len(read(table)) == 5

    options = {"bucket": "1", "metastore.partitioned-table": "true", "partition.mark-done-action": "mark-event"}
    kept = ours.create_table("shop.kept", COLUMNS, ["id", "v"], ["v"], options=options)
    kept.write(rows((1, "a b"), (2, "c")))
    assert kept.mark_done() == ("v=a b", "v=c")
    # This server has no request that adds a partition.
    with pytest.raises(bl.UnsupportedTableError, match="the catalog does not store partitions of"):
        kept.set_options({"partition.mark-done-action": "done-partition"}).mark_done()
    ours.drop_table("shop.kept")

    ours.rename_table("shop.theirs", "depot.moved")
    assert java.do("tables", database="depot")["names"] == ["moved"] == ours.list_tables("depot")
    # This server goes on naming the folder that the table had before.
    with pytest.raises(bl.TableNotFoundError, match="the catalog has a table"):
        ours.table("depot.moved")
    ours.drop_table("depot.moved")
    with pytest.raises(PeerError):
        java.do("read", table="depot.moved")
    ours.drop_database("depot")
    java.do("drop-database", database="shop")
    assert ours.list_databases() == []


def _branches(java: PaimonCatalogs, ours: bl.Catalog) -> None:
    """Branches of the table `shop.ours`, made, written, compacted and read in turns; none is left."""
    table = ours.table("shop.ours")
    before = read(table)
    table.create_branch("dev", "kept")
    java.do("create-branch", table="shop.ours", branch="theirs", tag="kept")
    assert sorted(java.do("branches", table="shop.ours")["names"]) == table.branches() == ["dev", "theirs"]
    with pytest.raises(OptionError, match="already exists"):
        table.create_branch("theirs", "kept")
    for name in ("dev", "theirs"):
        address = f"shop.ours$branch_{name}"
        branch = ours.table(address)
        assert read(branch) == before
        branch.write(rows((7, f"{name} ours")))
        java.do("write", table=address, rows=[[8, f"{name} java"], [7, f"{name} java"]])
        java.do("lose-answer")
        branch.write(rows((9, f"{name} once")))
        branch.compact()
        newest = java.do("latest", table=address)["snapshot"]
        assert branch.snapshots()["snapshot_id"].to_pylist()[-1] == newest
        assert branch.snapshots()["commit_kind"].to_pylist()[-1] == "COMPACT"
        expected = sorted([*before, (7, f"{name} java"), (8, f"{name} java"), (9, f"{name} once")])
        assert read(branch) == sorted(map(tuple, java.do("read", table=address)["rows"])) == expected
        assert branch.add_column("extra", "INT").drop_column("extra").schema.names == ["id", "v"]
        branch.create_tag("of-branch")
        assert sorted(java.do("tags", table=address)["names"]) == ["kept", "of-branch"]
        branch.write(rows((10, "to be taken back")))
        assert branch.rollback_to("of-branch") == newest == java.do("latest", table=address)["snapshot"]
        assert read(branch) == expected and branch.doctor(rows=True) == []
    assert read(table) == before == sorted(map(tuple, java.do("read", table="shop.ours")["rows"]))
    table.create_branch("empty")
    java.do("drop-branch", table="shop.ours", branch="empty")
    assert table.fast_forward("dev") == java.do("latest", table="shop.ours")["snapshot"]
    assert read(table) == read(ours.table("shop.ours$branch_dev"))
    assert read(table) == sorted(map(tuple, java.do("read", table="shop.ours")["rows"]))
    assert table.delete_branch("dev") and table.delete_branch("theirs")
    assert java.do("branches", table="shop.ours")["names"] == table.branches() == []
