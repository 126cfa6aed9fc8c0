"""INT96 times before 1970, as Arrow wrote them before release 23: with a negative time of day."""

import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketline.state.store.datafile.parquet_rows import ParquetRows

_DAY_NS = 86_400_000_000_000
_EPOCH_DAY = 2_440_588
TIMES = [0, -1, -1000, -500_000_000, -_DAY_NS, -_DAY_NS - 1, -315_619_199_999_999_000, 1 - 2**63, 2**63 - 1, 7]


def _stored(days: int, nanos: int) -> bytes:
    return struct.pack("<qi", nanos, days + _EPOCH_DAY)


def _write(path: Path, *, release: str) -> None:
    """A file as an Arrow of that release writes it; what the installed one writes is changed to that."""
    rows = pa.table({"x": pa.array([*TIMES, None], pa.timestamp("ns"))})
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True, compression="none", use_dictionary=False)
    data = path.read_bytes()
    for time in TIMES:
        days = -(-time // _DAY_NS) if time < 0 else time // _DAY_NS
        older, newer = _stored(days, time - days * _DAY_NS), _stored(*divmod(time, _DAY_NS))
        assert older in data or newer in data
        data = data.replace(newer, older) if int(release.partition(".")[0]) < 23 else data.replace(older, newer)
    own = f"parquet-cpp-arrow version {pa.__version__}"
    data = data.replace(own.encode(), f"parquet-cpp-arrow version {release}".ljust(len(own)).encode())
    path.write_bytes(data)


@pytest.mark.parametrize("release", ["9.0.0", "17.0.0", "19.0.1", "22.0.0", "23.0.0", "26.0.1"])
def test_times_before_1970_are_read_whoever_wrote_them(tmp_path: Path, release: str) -> None:
    path = tmp_path / "x.parquet"
    _write(path, release=release)
    with pa.OSFile(str(path)) as source:
        batches = list(ParquetRows(source).batches(["x"], 100, 1 << 20))
    column = pa.Table.from_batches(batches)["x"]
    assert column.type == pa.timestamp("ns") and column.cast(pa.int64()).to_pylist() == [*TIMES, None]
