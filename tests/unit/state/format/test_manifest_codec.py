"""`manifest.compression`: the codec of manifests, their lists and index manifests."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.format.avro.container import open_container
from bucketline.state.format.data_file import SimpleStats
from bucketline.state.format.entries import FileKind
from bucketline.state.format.manifest import decode_manifest, encode_manifest
from bucketline.state.store.table.table import Table, create_table
from tests.support.tables.commits import data_file, entry, key_of


def _table(path: Path, **options: str) -> Table:
    return create_table(str(path / "w.db" / "t"), "id INT", ["id"], options={"bucket": "-1", **options})


def _write(table: Table, start: int) -> None:
    table.write(pa.table({"id": pa.array(range(start, start + 10), pa.int32())}))


def _codecs(table: Table) -> dict[str, str]:
    """The codec of each file in the manifest folder, by name."""
    folder = Path(table.path) / "manifest"
    return {f.name: open_container(f.read_bytes()).codec for f in folder.iterdir() if not f.name.startswith(".")}


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        (None, "zstandard"),
        ("ZSTD", "zstandard"),
        ("zstandard", "zstandard"),
        ("snappy", "snappy"),
        ("deflate", "deflate"),
        ("bzip2", "bzip2"),
        ("null", "null"),
    ],
)
def test_all_manifests_of_a_table_have_the_codec_it_names(text: str | None, codec: str, tmp_path: Path) -> None:
    table = _table(tmp_path, **({} if text is None else {"manifest.compression": text}))
    _write(table, 0)
    _write(table, 5)
    found = _codecs(table)
    assert any(name.startswith("index-manifest-") for name in found)
    assert any(name.startswith("manifest-list-") for name in found)
    assert set(found.values()) == {codec}
    assert table.to_arrow().num_rows == 15


def test_another_codec_is_for_new_manifests_and_merged_ones(tmp_path: Path) -> None:
    table = _table(tmp_path, **{"manifest.merge-min-count": "2"})
    _write(table, 0)
    before = _codecs(table)
    table = table.set_options({"manifest.compression": "snappy"})
    for start in (5, 10):
        _write(table, start)
    assert {codec for name, codec in _codecs(table).items() if name not in before} == {"snappy"}
    assert table.to_arrow().num_rows == 20


@pytest.mark.parametrize("text", ["none", "lz4", "xz", "brotli"])
def test_a_codec_that_not_everybody_reads_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"manifest\.compression.*(must be one of|support only) zstd"):
        _table(tmp_path, **{"manifest.compression": text})


def test_entries_keep_once_what_they_have_in_common() -> None:
    """A writer holds the entries of all live files, a million of them in a large table."""
    stats = SimpleStats(key_of(0), key_of(9), (0, None))
    file = replace(data_file("a"), key_stats=stats, value_stats=stats, value_stats_cols=("k", "v"))
    other = replace(data_file("b"), key_stats=SimpleStats(key_of(1), key_of(9), (0, None)), value_stats_cols=("k", "v"))
    entries = [entry(FileKind.ADD, f, partition=key_of(5)) for f in (file, other)]
    first, second = found = decode_manifest(encode_manifest(entries))
    assert found == entries
    assert first.partition is second.partition
    assert first.file.value_stats_cols is second.file.value_stats_cols
    assert first.file.key_stats.null_counts is first.file.value_stats.null_counts is second.file.key_stats.null_counts
    assert first.file.key_stats.min_values is first.file.min_key
    assert second.file.key_stats.max_values is second.file.max_key
    assert second.file.min_key != second.file.key_stats.min_values
