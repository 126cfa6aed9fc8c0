"""Limits: the steps of each work, at a tiny size; the page in docs has the bounds that are measured."""

import re
from pathlib import Path

import pytest

from tests.limits.cases import CASES

ROOT = Path(__file__).parents[2]
TINY = 0.0002


@pytest.mark.parametrize("name", CASES)
def test_the_steps_of_a_limit_do_what_they_say_at_a_tiny_size(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    shape = case.far(TINY)
    shape.prepare(tmp_path)
    for step in case.steps:
        step.work(shape, tmp_path)


def test_the_page_has_each_limit_and_each_bound() -> None:
    page = (ROOT / "docs" / "how-far.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w-]+) \| ([\w ]+) \| (\d+) MiB, ([\d.]+) times \|", page, re.MULTILINE)
    bounds = [(c.name, s.name, str(s.most_mib), str(s.most_times)) for c in CASES.values() for s in c.steps]
    assert rows == bounds
    assert all(f"| {c.name} | {c.what} | {c.plain_what} |" in page for c in CASES.values())
