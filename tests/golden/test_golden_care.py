"""Golden tables of every kind survive expiry: the newest rows are the same, nothing is broken, nothing is left over."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from bucketline.state.store.doctor.finding import Severity
from bucketline.state.store.table.table import handle_of, open_table
from tests.support.peers.golden import as_bag, golden_table, golden_tables, json_rows


@pytest.mark.parametrize("name", golden_tables())
def test_expiry_leaves_the_newest_rows_and_nothing_else(name: str, tmp_path: Path) -> None:
    shutil.copytree(golden_table(name), tmp_path / "t")
    table = open_table(str(tmp_path / "t"))
    table.create_tag("first", handle_of(table).snapshot_store.ids()[0])
    before, tagged = as_bag(json_rows(table.to_arrow())), as_bag(json_rows(table.to_arrow(snapshot="first")))
    table.expire_snapshots(retain_min=1, retain_max=1)
    assert len(handle_of(table).snapshot_store.ids()) == 1
    assert as_bag(json_rows(table.to_arrow())) == before
    assert as_bag(json_rows(table.to_arrow(snapshot="first"))) == tagged
    assert [f for f in table.doctor(rows=True) if f.severity is Severity.ERROR] == []
    assert table.delete_tag("first")
    assert as_bag(json_rows(table.to_arrow())) == before
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()
