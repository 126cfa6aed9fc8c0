"""The key index through batches, compactions, restarts, rebuilds and backups: always what the table says."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketline.state.bucket.key_entries import read_places
from bucketline.state.determinism import SYSTEM_WORLD
from bucketline.state.store.key_index.backup import BackupFolder, back_up
from bucketline.state.store.key_index.key_index import KeyIndex
from bucketline.state.store.key_index.ready import IndexPlan, ready_index
from bucketline.state.store.key_index.rocks import RocksSettings
from bucketline.state.store.storage.local_io import LocalIO
from tests.support.tables.moving_keys import MovingKeys, Row

SETTINGS = RocksSettings(8 << 20)
INSERT, DELETE = 0, 3

row = st.tuples(st.integers(0, 12), st.sampled_from("abc"), st.integers(0, 99), st.sampled_from([0, 0, 2, 3]))
step = st.lists(row, min_size=1, max_size=8) | st.sampled_from(["compact", "lose", "damage", "back up", "skip"])


def plan_of(table: MovingKeys, root: Path, share: int = 0, shares: int = 1) -> IndexPlan:
    backup = BackupFolder(LocalIO(), str(root / "checkpoint"))
    return IndexPlan(str(table.path), table.keys(share, shares), str(root / "local"), SETTINGS, backup)


def contents(index: KeyIndex) -> dict[bytes, tuple[bytes, int]]:
    """Every key in the index, and its place."""
    pairs = index.items(b"\x01", 10_000)
    found = read_places([value for _, value in pairs])
    names = index.partitions(found.partitions.tolist())
    places = zip(found.partitions.tolist(), found.buckets.tolist(), strict=True)
    counts: dict[tuple[int, int], int] = {}
    answer = {}
    for (key, _), place in zip(pairs, places, strict=True):
        counts[place] = counts.get(place, 0) + 1
        answer[key] = (names[place[0]], place[1])
    for code in names:
        assert index.rows(code) == {b: n for (c, b), n in counts.items() if c == code}
    return answer


def apply(model: dict[int, tuple[str, int]], rows: list[Row]) -> None:
    for key, partition, value, kind in rows:
        if kind == DELETE:
            model.pop(key, None)
        else:
            model[key] = (partition, value)


@given(steps=st.lists(step, min_size=1, max_size=8))
@settings(max_examples=12, deadline=None)
def test_the_index_is_what_a_new_one_would_be_and_no_key_is_in_two_places(steps) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        table, model = MovingKeys(root / "t"), {}
        plan = plan_of(table, root)
        for number, action in enumerate(steps):
            if action == "compact":
                table.compact()
                continue
            if action == "lose":
                shutil.rmtree(plan.path, ignore_errors=True)
                continue
            if action == "damage":
                for path in Path(plan.path).glob("db/CURRENT"):
                    path.write_text("x")
                continue
            index, _ = ready_index(plan, table.source, table.latest())
            with index:
                if action == "back up":
                    back_up(index, plan.backup, SYSTEM_WORLD)
                elif action != "skip":
                    table.write(action, index, note=number % 2 == 0)
                    apply(model, action)
            assert table.rows() == model
            fresh = plan_of(table, root / f"fresh-{number}")
            index, _ = ready_index(plan, table.source, table.latest())
            new, _ = ready_index(fresh, table.source, table.latest())
            with index, new:
                assert contents(index) == contents(new)
                assert len(contents(index)) == len(model)


@pytest.mark.parametrize("engine", ["partial-update", "aggregation", "first-row"])
@pytest.mark.parametrize("noted", [False, True])
def test_other_engines_never_put_a_key_into_two_partitions(tmp_path: Path, engine: str, noted: bool) -> None:
    options = {"merge-engine": engine}
    if engine == "aggregation":
        options["fields.v.aggregate-function"] = "sum"
    table = MovingKeys(tmp_path / "t", options)
    plan = plan_of(table, tmp_path)
    for batch in (
        [(1, "a", 10, 0), (2, "b", 20, 0)],
        [(1, "b", 11, 0), (3, "c", 1, 0)],
        [(3, "a", 2, 0), (1, "c", 5, 0)],
    ):
        index, _ = ready_index(plan, table.source, table.latest())
        with index:
            table.write(batch, index)
    index, report = ready_index(plan, table.source, table.latest())
    with index:
        assert len(contents(index)) == 3 and report.caught_up == 1
    if engine == "first-row":
        table.compact()
    expected = {
        "partial-update": {1: ("a", 5), 2: ("b", 20), 3: ("c", 2)},
        "aggregation": {1: ("a", 26), 2: ("b", 20), 3: ("c", 3)},
        "first-row": {1: ("a", 10), 2: ("b", 20), 3: ("c", 1)},
    }
    assert table.rows() == expected[engine]


def test_shares_hold_each_key_once_and_together_all(tmp_path: Path) -> None:
    table = MovingKeys(tmp_path / "t", target_rows=50)
    whole = plan_of(table, tmp_path)
    for start in (0, 100):
        index, _ = ready_index(whole, table.source, table.latest())
        with index:
            table.write([(i, "abc"[i % 3], i, INSERT) for i in range(start, start + 150)], index)
    parts: list[dict[bytes, tuple[bytes, int]]] = []
    for share in range(3):
        index, _ = ready_index(plan_of(table, tmp_path, share, 3), table.source, table.latest())
        with index:
            parts.append(contents(index))
    index, _ = ready_index(whole, table.source, table.latest())
    with index:
        assert {k: v for part in parts for k, v in part.items()} == contents(index)
    assert sum(map(len, parts)) == 250 and all(parts)
