"""Manifests in the formats that `manifest.format` allows beside Avro, whole and damaged."""

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketline.conf.errors import OptionError
from bucketline.conf.table.choices import FileFormat
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.index.index_manifest import decode_index_manifest, encode_index_manifest
from bucketline.state.format.manifest import (
    decode_manifest,
    decode_manifest_list,
    encode_manifest,
    encode_manifest_list,
)
from bucketline.state.format.metadata_records import Encoding
from bucketline.state.store.table.table import create_table, handle_of, open_table
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


@pytest.mark.parametrize("form", ["orc", "parquet"])
def test_what_is_written_has_the_columns_of_paimons_own_files(form: str, tmp_path: Path) -> None:
    schema_of = {"parquet": pq.read_schema, "orc": lambda path: orc.ORCFile(path).schema}[form]
    for path in _table(form).joinpath("manifest").iterdir():
        encode, decode = _codec(path.name)
        found = decode(path.read_bytes())
        ours = tmp_path / path.name
        ours.write_bytes(encode(found, Encoding(FileFormat(form), "zstd")))
        assert decode(ours.read_bytes()) == found
        theirs, written = (schema_of(str(p)).remove_metadata() for p in (path, ours))
        newer = [f for f in written if f.name == "_GLOBAL_INDEX"]  # Paimon 2.0 has one more field in it
        assert [f for f in theirs if f.name != "_GLOBAL_INDEX"] == [f for f in written if f not in newer]


@pytest.mark.parametrize("form", ["orc", "parquet"])
def test_a_table_is_written_compacted_and_expired_by_them(form: str, tmp_path: Path) -> None:
    shutil.copytree(_table(form), tmp_path / "t")
    table = open_table(str(tmp_path / "t"))
    rows, before = table.to_arrow().sort_by("k"), set((tmp_path / "t/manifest").iterdir())
    table.write(rows)
    table.delete("k = 5")
    table.compact()
    table.expire_snapshots(retain_max=1, retain_min=1, older_than=timedelta(0))
    left = table.to_arrow(filter="k <> 5").num_rows
    assert left == table.to_arrow().num_rows and table.doctor(rows=True) == []
    made = set((tmp_path / "t/manifest").iterdir()) - before
    magic = b"ORC" if form == "orc" else b"PAR1"
    assert made and all(p.read_bytes().startswith(magic) for p in made)


def test_codecs_that_a_format_does_not_have_are_refused(tmp_path: Path) -> None:
    options = {"bucket": "1", "manifest.format": "orc", "manifest.compression": "bzip2"}
    with pytest.raises(OptionError, match=r"manifests in orc support only zstd, snappy, none, zlib, lz4"):
        create_table(str(tmp_path / "w.db/t"), "k INT NOT NULL", ["k"], options=options)
    with pytest.raises(OptionError, match=r"manifests in avro support only zstd, zstandard, deflate, "):
        create_table(str(tmp_path / "w.db/v"), "k INT NOT NULL", ["k"], options={"manifest.compression": "lz4"})


@pytest.mark.parametrize(
    ("form", "codec"), [("parquet", "null"), ("parquet", "gzip"), ("orc", "zlib"), ("orc", "none")]
)
def test_manifests_have_the_codec_that_the_table_says(form: str, codec: str, tmp_path: Path) -> None:
    options = {"bucket": "1", "manifest.format": form, "manifest.compression": codec}
    table = create_table(str(tmp_path / "w.db/u"), "k INT NOT NULL", ["k"], options=options)
    table.write(pa.table({"k": pa.array([1], pa.int32())}))
    assert table.to_arrow().num_rows == 1


def _codec(name: str) -> tuple[Callable[..., bytes], Decode]:
    if name.startswith("manifest-list-"):
        return encode_manifest_list, _decoder(name)
    return encode_index_manifest if name.startswith("index-") else encode_manifest, _decoder(name)
