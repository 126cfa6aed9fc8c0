"""Paimon Java reads what worlds of the simulation leave: the same rows as this library."""

from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.draw import draw_script
from tests.simulation.life import Life
from tests.simulation.rows import State
from tests.support.peers.peer import PaimonJava

pytestmark = pytest.mark.peer

_SEEDS = tuple(str(n) for n in range(12))


def test_the_ends_of_worlds_are_read_as_here(paimon_java: PaimonJava, tmp_path: Path) -> None:
    kinds = set()
    for seed in _SEEDS:
        script = draw_script(seed)
        if script.tables[0].kind in kinds:
            continue
        kinds.add(script.tables[0].kind)
        life = Life(script)
        history = life.live()
        assert history.failure is None, f"seed {seed}: {history.failure}"
        for path, file in life.disk.files.items():
            target = tmp_path / seed / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.data)
        for name, rows in history.ends.items():
            theirs = paimon_java.read(tmp_path / seed / "simulated" / "shop.db" / name)
            assert _state(theirs) == rows, f"seed {seed}, table {name}"
    assert len(kinds) > 5


def _state(rows: object) -> State:
    assert isinstance(rows, list)
    return Counter((r["id"], str(r["day"]), r["v"], r.get("more")) for r in rows)
