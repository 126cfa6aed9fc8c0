"""The API reference says what the code says."""

import runpy
from typing import Any

import bucketline
from tests.support.pages.readme import DOCS, ROOT, headings

API: dict[str, Any] = runpy.run_path(str(ROOT / ".ci" / "api.py"))
PAGE = DOCS / "api.md"


def test_the_page_in_the_repository_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == API["page"](), "docstrings have changed: run .ci/run api"


def test_every_public_name_has_a_heading() -> None:
    public = {name.lower() for name in bucketline.__all__ if not name.startswith("_")}
    assert public <= headings(PAGE)


def test_each_method_of_a_table_is_described_and_no_plumbing_is() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in ("to_arrow", "write", "compact", "schema", "primary_key"):
        assert f"\n#### Table.{name}\n" in text
    for name in ("io", "manifests", "snapshot_store", "table_schema"):
        assert f"Table.{name}" not in text
