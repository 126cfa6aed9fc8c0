"""The live files of a table, followed by deltas: what each bucket holds, and what a batch leaves as it is."""

import random

import pytest

from bucketline.state.commit.live_files import LiveFiles
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import EMPTY_ROW, DataFileMeta
from bucketline.state.format.entries import FileKind
from tests.support.tables.commits import data_file, entry, snapshot

ONE, OTHER = (EMPTY_ROW, 1), (EMPTY_ROW, 0)


def _added(live: LiveFiles, snapshot_id: int, bucket: int, *names: str) -> LiveFiles:
    return live.after(snapshot(snapshot_id), [entry(FileKind.ADD, data_file(n), bucket=bucket) for n in names])


def test_a_delta_leaves_what_is_known_of_other_buckets_as_it_is() -> None:
    before = _added(_added(LiveFiles(), 1, 0, "b", "a"), 2, 1, "d", "c")
    after = _added(before, 3, 1, "e")
    assert after.files(OTHER) is before.files(OTHER)
    assert [f.file_name for f in after.files(ONE)] == ["c", "d", "e"]
    assert [f.file_name for f in before.files(ONE)] == ["c", "d"]


@pytest.mark.parametrize("seed", range(5))
def test_deltas_give_what_a_plain_dictionary_holds(seed: int) -> None:
    draw = random.Random(seed)
    live, held = LiveFiles(), dict[tuple[bytes, int], dict[str, DataFileMeta]]()
    for number in range(1, 30):
        delta = []
        for _ in range(draw.randrange(4)):
            place = (EMPTY_ROW, draw.randrange(3))
            files = held.setdefault(place, {})
            if files and draw.random() < 0.5:
                gone = files.pop(draw.choice(sorted(files)))
                delta.append(entry(FileKind.DELETE, gone, bucket=place[1]))
            else:
                file = data_file(f"{draw.random()}", rows=draw.randrange(1, 99))
                files[file.file_name] = file
                delta.append(entry(FileKind.ADD, file, bucket=place[1]))
        live = live.after(snapshot(number), delta)
        there = {place: files for place, files in held.items() if files}
        assert list(live.buckets()) == sorted(there)
        for place in ((EMPTY_ROW, bucket) for bucket in range(4)):
            files = there.get(place, {})
            assert live.files(place) == tuple(files[name] for name in sorted(files))
            assert live.next_sequence_number(place) == max(
                (f.max_sequence_number + 1 for f in files.values()), default=0
            )
            assert live.total_of_bucket(place) == (2 if files else 0)
        assert live.totals() == ({EMPTY_ROW: 2} if there else {})


def test_a_delta_that_deletes_a_file_that_is_not_live_is_refused() -> None:
    live = _added(LiveFiles(), 1, 0, "a")
    with pytest.raises(CorruptFileError, match="deletes b, which is not live"):
        live.after(snapshot(2), [entry(FileKind.DELETE, data_file("b"), bucket=0)])
