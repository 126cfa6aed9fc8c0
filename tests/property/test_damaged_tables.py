"""Damaged files of every kind: a read says which file is damaged, or gives the right rows, and never a library's error.

Cut files are always found out. A changed byte is found out where the format has checksums (Parquet pages, deletion
vectors), sizes or structure; ORC, Avro and the footers of Parquet have no checksum, so there only the error's kind is
judged.
"""

import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bucketline.conf.errors import BucketlineError
from bucketline.state.errors import CorruptFileError
from bucketline.state.store.table.table import open_table
from tests.support.peers.golden import GOLDEN, as_bag, json_rows

TABLES = {
    name: GOLDEN / folder / name
    for folder, name in (
        ("java.db", "all_parquet"),
        ("java.db", "all_orc"),
        ("java.db", "all_avro"),
        ("java.db", "evolved"),
        ("java.db", "dv32"),
        ("java.db", "dv64"),
        ("shared.db", "pk_partitioned"),
    )
}
HINTS = ("LATEST", "EARLIEST")
UNCHECKED = (".orc", ".avro")
CRASHES = (".orc",) if int(pa.__version__.split(".")[0]) < 24 else ()
"""Files that are not changed here, because older releases of pyarrow end the process over a damaged one."""


@cache
def _files(name: str) -> list[str]:
    """The files that a read of the newest snapshot may open, relative to the table."""
    root = TABLES[name]
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and p.name not in HINTS)


def _rows(root: Path) -> list[dict[str, object]]:
    return json_rows(open_table(str(root)).to_arrow())


@cache
def _right(name: str) -> frozenset[tuple[str, int]]:
    return frozenset(as_bag(_rows(TABLES[name])).items())


def _read_damaged(name: str, file: str, data: bytes) -> list[dict[str, object]] | BucketlineError:
    with TemporaryDirectory() as scratch:
        copied = Path(scratch) / name
        shutil.copytree(TABLES[name], copied)
        (copied / file).write_bytes(data)
        try:
            table = open_table(str(copied)).to_arrow()
        except BucketlineError as e:
            return e
    try:
        return json_rows(table)
    except UnicodeDecodeError:
        # Bytes of text that are no UTF-8 are read as they are, from ORC as from Parquet: Java stores such text, too.
        assert file.endswith(UNCHECKED), file
        return []


def _footer(file: bytearray) -> int:
    """Where the footer of a Parquet file begins, which has no checksum in files that other writers made."""
    return len(file) - 8 - int.from_bytes(file[-8:-4], "little")


def _assert_says_where(found: BucketlineError, file: str) -> None:
    if isinstance(found, CorruptFileError):
        assert "path" in found.fields and "offset" in found.fields, found
        assert str(found.fields["path"]) in str(found)


@pytest.mark.parametrize("name", sorted(TABLES))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_cut_file_is_found_out(name: str, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from(_files(name)))
    whole = (TABLES[name] / file).read_bytes()
    kept = data.draw(st.integers(0, len(whole) - 1))
    found = _read_damaged(name, file, whole[:kept])
    if isinstance(found, BucketlineError):
        _assert_says_where(found, file)
    else:
        assert frozenset(as_bag(found).items()) == _right(name)


@pytest.mark.parametrize("name", sorted(TABLES))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_changed_bytes_never_end_in_a_librarys_error(name: str, data: st.DataObject) -> None:
    file = data.draw(st.sampled_from([f for f in _files(name) if not f.endswith(CRASHES)]))
    broken = bytearray((TABLES[name] / file).read_bytes())
    places = data.draw(st.lists(st.integers(0, len(broken) - 1), min_size=1, max_size=3))
    has_pages = file.endswith(".parquet") and max(places) < _footer(broken)
    for place in places:
        broken[place] ^= data.draw(st.integers(1, 255))
    found = _read_damaged(name, file, bytes(broken))
    if isinstance(found, BucketlineError):
        _assert_says_where(found, file)
    elif has_pages or file.startswith("index/"):
        assert frozenset(as_bag(found).items()) == _right(name)
