"""Changelog files that Flink has packed into one file, as `precommit-compact` of Paimon's jobs does."""

import re
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.manifest import decode_manifest
from bucketline.state.format.packed_changelog import PackedPart, part_of, stored_path
from bucketline.state.store.table.table import Table, create_table, open_table
from tests.support.tables.edited_manifests import edit_manifests

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


def table_with_changes(path: Path, form: str) -> Table:
    options = {"bucket": "3", "changelog-producer": "input", "file.format": form, "snapshot.num-retained.max": "1"}
    options |= {"snapshot.num-retained.min": "1", "changelog.num-retained.min": "3", "changelog.num-retained.max": "3"}
    table = create_table(str(path), SCHEMA, ["k"], options=options)
    for turn in range(3):
        table.write(pa.table({"k": range(20), "v": [f"{turn}-{k}" for k in range(20)]}, schema=SCHEMA))
    return table


def pack(path: Path, copy: Path) -> list[Path]:
    """Copies a table, and puts the changelog files of each commit into one there, as Flink's ChangelogCompactTask does.
    Returns the packed files, those of older commits first.
    """
    shutil.copytree(path, copy)
    names: dict[str, str] = {}
    packed = []
    for manifest in sorted(
        (copy / "manifest").glob("manifest-[!l]*"), key=lambda f: (path / f.relative_to(copy)).stat().st_mtime_ns
    ):
        entries = [e for e in decode_manifest(manifest.read_bytes()) if e.file.file_name.startswith("changelog-")]
        if not entries:
            continue
        files = [copy / f"bucket-{e.bucket}" / e.file.file_name for e in entries]
        form = files[0].suffix.removeprefix(".")
        name = f"compacted-changelog-0a1b-{len(packed)}${entries[0].bucket}-{files[0].stat().st_size}"
        whole = b""
        for file in files:
            part = f"-{len(whole)}-{file.stat().st_size}" if whole else ""
            names[file.name] = f"{name}{part}.cc-{form}"
            whole += file.read_bytes()
            file.unlink()
        packed.append(files[0].with_name(f"{name}.cc-{form}"))
        packed[-1].write_bytes(whole)
    edit_manifests(copy, lambda f: replace(f, file_name=names.get(f.file_name, f.file_name)))
    return packed


def changes(path: Path) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = open_table(str(path)).to_arrow(changes_since=0).to_pylist()
    return rows


@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
def test_changes_are_read_out_of_packed_files(form: str, tmp_path: Path) -> None:
    plain, path = tmp_path / "w.db/plain", tmp_path / "w.db/t"
    table_with_changes(plain, form)
    packed = pack(plain, path)
    assert len(packed) == 3 and set(path.glob("bucket-*/*changelog-*")) == set(packed)
    assert changes(path) == changes(plain)
    table = open_table(str(path))
    assert len(changes(path)) == 60 and table.doctor(rows=True) == []
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()
    assert changes(path) == changes(plain)


def test_a_packed_file_goes_with_its_changelog(tmp_path: Path) -> None:
    plain, path = tmp_path / "w.db/plain", tmp_path / "w.db/t"
    table_with_changes(plain, "parquet")
    packed = pack(plain, path)
    table = open_table(str(path))
    table.expire_snapshots()
    assert table.snapshots().num_rows == 1 and all(p.exists() for p in packed)
    assert changes(path) == changes(plain) and table.doctor(rows=True) == []
    table.write(pa.table({"k": [1], "v": ["x"]}, schema=SCHEMA))
    table.expire_snapshots()
    assert [p.exists() for p in packed] == [False, True, True]
    assert table.remove_orphan_files(older_than=timedelta(0)).files == ()


def test_a_packed_file_that_is_too_short_or_gone_is_named(tmp_path: Path) -> None:
    plain, path = tmp_path / "w.db/plain", tmp_path / "w.db/t"
    table_with_changes(plain, "parquet")
    packed = pack(plain, path)
    packed[-1].write_bytes(packed[-1].read_bytes()[:-1])
    with pytest.raises(CorruptFileError, match=re.escape(packed[-1].name)):
        changes(path)
    packed[-1].unlink()
    assert {f.rule for f in open_table(str(path)).doctor()} == {"missing-file"}


def test_the_name_says_where_a_part_lies() -> None:
    base = "compacted-changelog-8e04-5ce4$2-39253"
    assert part_of(f"{base}.cc-orc") == PackedPart(0, 39253, "orc")
    assert part_of(f"{base}-39253-35699.cc-orc") == PackedPart(39253, 35699, "orc")
    assert stored_path(f"s3://b/t/p=1/bucket-7/{base}-39253-35699.cc-orc") == f"s3://b/t/p=1/bucket-2/{base}.cc-orc"
    for path in (f"t/bucket-2/{base}.cc-orc", "t/bucket-2/changelog-8e04-0.orc", f"t/bucket-2/{base}-1.cc-orc"):
        assert stored_path(path) == path
    for name in ("changelog-8e04-0.orc", f"{base}-1.cc-orc", f"{base}.orc"):
        assert part_of(name) is None
