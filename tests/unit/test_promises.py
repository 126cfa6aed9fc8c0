"""The page of promises: each test that it names is there, and so is each part of `.ci/run`."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
PROMISED = PAGE.partition("## Rows")[2].partition("## Not promised")[0]


def test_each_test_that_a_promise_names_is_there() -> None:
    named = re.findall(r"`([a-z_]+/[\w*/.]*)`", PROMISED)
    assert len(named) > 30
    assert [path for path in named if not list((ROOT / "tests").glob(path))] == []


def test_each_part_of_a_run_that_a_promise_names_is_there() -> None:
    parts = re.findall(r"\(`(?:\.ci/run )?([a-z-]+)[^`]*`\)", PROMISED)
    program = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert {"crash-long", "kills-long", "soak"} <= set(parts)
    assert [part for part in parts if not re.search(rf"^{part}\(\)", program, re.MULTILINE)] == []


def test_each_promise_names_what_shows_it() -> None:
    rows = [line for line in PROMISED.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 15
    assert [row for row in rows if "`" not in row.strip("| ").rpartition("|")[2]] == []
