"""One flipped bit in a file: a read finds the right rows, or an error says which file is damaged.

`BUCKETLINE_FLIPS` says how many bits of each kind of file are flipped, and some more where all of these hit what no
read looks at; `BUCKETLINE_FLIPS_SEED` says which.
"""

import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bucketline.state.store.datafile.parquet_rows import ParquetRows
from bucketline.state.store.table.table import Table, create_table, open_table
from tests.support.tables.flips import Outcome, Read, draw_flips, try_flips

FLIPS = int(os.environ.get("BUCKETLINE_FLIPS", "12"))
SEED = int(os.environ.get("BUCKETLINE_FLIPS_SEED", "1"))
COLUMNS = (
    "id INT NOT NULL, pt STRING NOT NULL, n BIGINT, v STRING, d DOUBLE, dec DECIMAL(12, 2), t TIMESTAMP(3), "
    "l ARRAY<INT>, r ROW<a INT, b STRING>"
)
CODECS = {
    "parquet": ("zstd", "none", "snappy"),
    "orc": ("zstd", "none", "snappy", "zlib", "lz4"),
    "avro": ("zstd", "deflate", "snappy"),
}


def rows(start: int, count: int, draw: random.Random) -> pa.Table:
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int32()),
            "pt": [f"p{i % 2}" for i in ids],
            "n": [None if i % 7 == 0 else draw.randrange(2**40) for i in ids],
            "v": [f"text {draw.randrange(1000)}" for _ in ids],
            "d": [draw.random() for _ in ids],
            "dec": pa.array([i for i in ids], pa.decimal128(12, 2)),
            "t": pa.array([draw.randrange(2**40) for _ in ids], pa.timestamp("ms")),
            "l": [[i, i + 1] for i in ids],
            "r": [{"a": i, "b": str(i)} for i in ids],
        }
    )


def make(path: Path, form: str, codec: str, **options: str) -> Table:
    draw = random.Random(5)
    settings = {"bucket": "2", "file.format": form, "file.compression": codec, **options}
    table = create_table(str(path), COLUMNS, primary_key=("pt", "id"), partition_by=("pt",), options=settings)
    table.write(rows(0, 200, draw))
    table.write(rows(100, 200, draw))
    table.compact()
    table.write(rows(150, 100, draw))
    table.write(rows(380, 40, draw), pa.array([3] * 40, pa.int8()))
    return table


def reads_of(path: str) -> dict[str, Read]:
    """Each opens the table anew, as a new process would."""
    return {
        "all": lambda: open_table(path).to_arrow(),
        "filtered": lambda: open_table(path).to_arrow(filter=pc.field("id") == 160),
        "narrow": lambda: open_table(path).to_arrow(columns=["n"], filter=pc.field("n") > 2**39),
    }


def as_written(file: Path) -> tuple[Path, int, bytes]:
    """An order of files in which a seed flips the same bits again; by name it would be another each time, as names are
    random. Manifests hold names, so that they differ all the same."""
    return file.parent, file.stat().st_size, file.read_bytes()


def check(what: str, found: Outcome) -> None:
    print(f"{what}: {found}")
    assert found.wrong == []
    assert found.raw == []
    assert found.unnamed == []
    assert found.errors


@pytest.mark.parametrize(("form", "codec"), [(f, c) for f, codecs in CODECS.items() for c in codecs])
def test_no_flipped_bit_of_a_data_file_changes_rows(form: str, codec: str, tmp_path: Path) -> None:
    table = make(tmp_path / "t", form, codec)
    files = sorted((tmp_path / "t").rglob("data-*"), key=as_written)
    assert {f.suffix for f in files} == {f".{form}"}
    draw = random.Random(f"{SEED} {form} {codec}")
    check(f"{form} {codec}", try_flips(draw_flips(files, draw), reads_of(table.path), FLIPS))


@pytest.mark.parametrize("folder", ["manifest", "snapshot", "schema", "index"])
def test_no_flipped_bit_of_metadata_changes_rows(folder: str, tmp_path: Path) -> None:
    table = make(tmp_path / "t", "parquet", "zstd", **{"deletion-vectors.enabled": "true"})
    found = (p for p in (tmp_path / "t" / folder).iterdir() if p.name not in ("EARLIEST", "LATEST"))
    files = sorted(found, key=as_written)
    draw = random.Random(f"{SEED} {folder}")
    check(folder, try_flips(draw_flips(files, draw), reads_of(table.path), FLIPS))


def test_a_footer_that_says_two_types_of_a_column_is_refused(tmp_path: Path) -> None:
    """Arrow would end the process over the column's bounds."""
    pq.write_table(pa.table({"id": pa.array(range(100), pa.int32())}), tmp_path / "f")
    data = (tmp_path / "f").read_bytes()
    # In Thrift's compact form a column chunk begins with its type, INT32, and the list of its encodings.
    int32, int64 = b"\x15\x02\x19", b"\x15\x04\x19"
    assert data.count(int32) == 1
    rows = ParquetRows(pa.BufferReader(data.replace(int32, int64)))
    with pytest.raises(ValueError, match="its footer states two types for column id: INT64 and INT32"):
        rows.row_groups("id")
