"""`manifest.compression`: the codec of manifests, their lists and index manifests."""

from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.format.avro.container import open_container
from bucketline.state.store.table.table import Table, create_table


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
    with pytest.raises(OptionError, match=r"manifest\.compression.*must be one of zstd"):
        _table(tmp_path, **{"manifest.compression": text})
