"""A stream of small batches writes no more bytes than Paimon's, compactions included, with the same options."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from bucketline.state.format.data_file import FileSource
from bucketline.state.store.table.table import open_table
from tests.support.peers.our_tables import fields_of, make_table
from tests.support.peers.peer import PaimonJava
from tests.support.peers.written_bytes import COLUMNS, KEPT, batch_of, written_bytes

pytestmark = pytest.mark.peer

BATCHES, ROWS = 18, 400


@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        ("ascending", {}),
        ("ascending", {"target-file-size": "16 kb"}),
        ("uniform", {}),
        ("skewed", {"deletion-vectors.enabled": "true"}),
    ],
    ids=str,
)
def test_batches_write_no_more_than_those_of_java(
    paimon_java: PaimonJava, tmp_path: Path, pattern: str, options: Mapping[str, str]
) -> None:
    given = {"bucket": "1", **KEPT, **options}
    make_table(tmp_path / "ours", COLUMNS, primary_key=("k",), options=given)
    paimon_java.create(tmp_path / "java", fields_of(COLUMNS), primary_keys=("k",), options=given)
    ours = open_table(str(tmp_path / "ours"))
    for turn in range(BATCHES):
        rows = batch_of(pattern, turn, BATCHES, ROWS)
        ours.write(rows)
        paimon_java.write(tmp_path / "java", rows.to_pylist(), wait_compaction=True)
    own, other = written_bytes(tmp_path / "ours"), written_bytes(tmp_path / "java")
    assert own[FileSource.APPEND] <= 1.05 * other[FileSource.APPEND]
    assert own[FileSource.COMPACT] > 0
    assert sum(own.values()) <= 1.1 * sum(other.values())
