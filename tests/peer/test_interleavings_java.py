"""Paimon Java reads what two operations leave of which the first was stopped, or died, at a call to storage."""

import os
import random
from pathlib import Path

import pytest

from bucketline.state.store.table.table import open_table
from tests.support.peers.peer import PaimonJava
from tests.support.storage.interleaved import stopped_at
from tests.support.tables.care_world import KINDS, content, done, is_unnoticed, made

pytestmark = pytest.mark.peer

_PAIRS = (
    ("expire", "roll back"), ("roll back", "expire"), ("expire", "tag an old snapshot"), ("branch", "delete a tag"),
    ("delete a tag", "roll back to a tag"), ("roll back to a tag", "write"), ("fast-forward", "write"),
    ("expire", "roll back to a tag"),
)  # fmt: skip
_MOMENTS = 1 if os.environ.get("BUCKETLINE_INTERLEAVINGS") is None else 5
_SEED = os.environ.get("BUCKETLINE_INTERLEAVINGS_SEED", "")


@pytest.mark.parametrize("kind", ["fixed", "deletion vectors", "changelog of the input"])
def test_rows_and_tags_are_read_as_here(kind: str, tmp_path: Path, paimon_java: PaimonJava) -> None:
    draw = random.Random(kind + _SEED)
    for first, second in _PAIRS:
        with stopped_at(None) as counted:
            made(KINDS[kind], str(tmp_path / f"{first}-{second}" / "c"))
            begun = counted.calls
            done(str(tmp_path / f"{first}-{second}" / "c"), first)
        for moment in range(_MOMENTS):
            path = str(tmp_path / f"{first}-{second}" / f"shop{moment}.db" / "t")
            made(KINDS[kind], path)
            at = draw.randrange(1, max(2, counted.calls - begun + 1))
            with stopped_at(at, draw.choice((None, lambda path=path, second=second: done(path, second)))) as stopped:
                done(path, first)
            if not stopped.is_dead and is_unnoticed(first, second, stopped.where):
                continue
            with stopped_at(None):
                done(path, "write")
            assert _rows(paimon_java, path) == content(path), f"{first} | {second} | {at}"
            for tag in open_table(path).tags()["tag_name"].to_pylist():
                theirs = _rows(paimon_java, path, {"scan.tag-name": tag})
                assert theirs == content(path, **{"scan.tag-name": tag}), f"{first} | {second} | {at}: tag {tag}"


def _rows(paimon_java: PaimonJava, path: str, options: dict[str, str] | None = None) -> tuple[str, ...]:
    read = paimon_java.read(path, options=options)
    return tuple(sorted(str((r["id"], r["day"], r["v"])) for r in read))
