"""The page of `.ci/run bench --report`, out of results as a measurement gives them."""

from typing import Any

from tests.bench.rivals.page import FIGURES, page
from tests.bench.rivals.report import beside
from tests.bench.rivals.rival import Load


def _turn(seconds: float) -> dict[str, Any]:
    again = {"read_seconds": [3.0, 2.0], "read_cpu": [1.0, 1.5], "peak_bytes": 5 << 20}
    again |= {"restart_seconds": 9.0, "restart_cpu": 4.0}
    return {
        "batch_seconds": [seconds, seconds + 1, 8.0],
        "cpu": 2.0,
        "in_rows": 1000,
        "in_bytes": 400,
        "bytes": 200,
        "data_files": 12,
        "peak_bytes": 7 << 20,
        "load": 3.2,
        "again": again,
    }


def _rival(title: str, turns: list[dict[str, Any]], not_run: str | None = None) -> dict[str, Any]:
    settings = {"table_settings": {"bucket": "4"}, "session_settings": {}}
    return {"title": title, "version": "1.0", "remark": "none", "turns": turns, "not_run": not_run, **settings}


def _page(*rivals: dict[str, Any]) -> str:
    about = {"date": "2026-01-01", "commit": "abc", "machine": "2 cores", "rows": 1000, "keys": 4000, "batches": 3}
    more = {"warm_up": 2, "buckets": 4, "session": {"a": "b"}}
    return page({**about, **more, "rivals": list(rivals)})


def test_a_row_has_the_median_of_its_turns_and_their_spread() -> None:
    found = _page(_rival("one", [_turn(1.0), _turn(2.0), _turn(6.0)]))
    row = next(line for line in found.splitlines() if line.startswith("| one | "))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert len(cells) == 1 + len(FIGURES)
    assert cells[1] == "3.00 (2.00–7.00)"
    assert cells[3] == "2,000.0 (2,000.0–2,000.0)"
    assert cells[4] == "0.50 (0.50–0.50)"
    assert cells[6] == "2.00 (2.00–2.00)"
    assert cells[8] == "7 (7–7)"


def test_a_rival_that_was_not_run_says_why() -> None:
    found = _page(_rival("one", [_turn(1.0)]), _rival("two", [], "there is no jar"))
    row = next(line for line in found.splitlines() if line.startswith("| two | "))
    assert row.startswith("| two | not run: there is no jar |")
    assert row.count("|") == 2 + len(FIGURES)


def test_the_page_has_the_settings_of_each_rival() -> None:
    assert "| one | 1.0 | `bucket` = `4` | none | none |" in _page(_rival("one", [_turn(1.0)]))


def test_results_without_a_figure_that_was_added_later_still_make_a_page() -> None:
    old = _turn(1.0)
    del old["again"]["restart_cpu"]
    row = next(line for line in _page(_rival("one", [old])).splitlines() if line.startswith("| one | "))
    assert row.endswith("| 9.0 | not measured |")


def test_the_page_says_how_many_turns_the_rivals_had() -> None:
    assert "in 1 to 2 turns." in _page(_rival("one", [_turn(1.0)]), _rival("two", [_turn(1.0)] * 2), _rival("no", []))
    assert "in 1 turn." in _page(_rival("one", [_turn(1.0)]))


def test_more_turns_are_added_to_those_of_the_same_commit() -> None:
    old = {"name": "delta", "commit": "abc", "turns": [{"cpu": 1}], "not_run": None}
    before = {"rows": 1000, "rivals": [old]}

    def turns(rows: int, commit: str, *, adds: bool) -> list[dict[str, Any]]:
        found = [{**old, "commit": commit, "turns": [{"cpu": 2}]}]
        delta = next(r for r in beside(before, found, Load(rows, 1), adds=adds) if r["name"] == "delta")
        return list(delta["turns"])

    assert turns(1000, "abc", adds=True) == [{"cpu": 1}, {"cpu": 2}]
    alone = [turns(1000, "abc", adds=False), turns(1000, "other", adds=True), turns(9, "abc", adds=True)]
    assert alone == [[{"cpu": 2}]] * 3
    assert all(r["turns"] or r["not_run"] for r in beside(before, [], Load(1000, 1), adds=False))


def test_the_page_names_the_commit_of_each_run() -> None:
    later = {**_rival("two", [_turn(1.0)]), "commit": "def", "date": "2026-01-02"}
    assert "Measured on 2026-01-01 and 2026-01-02 at commits abc and def, on" in _page(
        _rival("one", [_turn(1.0)]), later
    )
    assert "Measured on 2026-01-01 at commit abc, on" in _page(_rival("one", [_turn(1.0)]))
