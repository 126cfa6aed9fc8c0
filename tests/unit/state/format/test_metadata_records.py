"""Manifests in the formats that `manifest.format` allows beside Avro, whole and damaged."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.index.index_manifest import decode_index_manifest
from bucketline.state.format.manifest import decode_manifest, decode_manifest_list
from bucketline.state.store.table.table import handle_of, open_table
from tests.support.peers.golden import GOLDEN

Decode = Callable[[bytes], list[object]]


def _table(form: str) -> Path:
    return GOLDEN / "java.db" / f"manifests_{form}"


def _decoder(name: str) -> Decode:
    for prefix, decode in (("manifest-list-", decode_manifest_list), ("index-", decode_index_manifest)):
        if name.startswith(prefix):
            return decode  # type: ignore[return-value]  # a list of what each decodes
    return decode_manifest  # type: ignore[return-value]


FILES = sorted(p for form in ("orc", "parquet") for p in (_table(form) / "manifest").iterdir())


@pytest.mark.parametrize("form", ["orc", "parquet"])
def test_files_and_vectors_are_found_through_them(form: str) -> None:
    table = open_table(str(_table(form)))
    files = table.files()
    assert files["creation_time"].null_count == 0
    assert all(Path(p).exists() for p in files["file_path"].to_pylist())
    newest = handle_of(table).snapshot_store.latest()
    assert newest is not None
    vectors = [e for e in handle_of(table).manifests.read_index(newest.index_manifest) if e.deletion_vector_ranges]
    assert [r.cardinality for e in vectors for r in e.deletion_vector_ranges or ()] == [3]


@given(st.sampled_from(FILES), st.data())
def test_a_damaged_one_is_corrupt_or_reads_the_same_fields(path: Path, data: st.DataObject) -> None:
    broken = bytearray(path.read_bytes())
    kept = data.draw(st.integers(1, len(broken)))
    place = data.draw(st.integers(0, kept - 1))
    broken[place] ^= data.draw(st.integers(1, 255))
    try:
        found = _decoder(path.name)(bytes(broken[:kept]))
    except CorruptFileError:
        return
    assert len(found) <= len(_decoder(path.name)(path.read_bytes())) + 1
