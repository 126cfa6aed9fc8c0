"""The site of docs/: every page has its place, and links of the repository lead to pages of the site."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_of_docs", ROOT / ".ci" / "site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _pages(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    for below in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from _pages(below)


def test_each_page_has_one_place_in_the_navigation() -> None:
    settings = yaml.safe_load((ROOT / ".ci" / "mkdocs.yml").read_text())
    pages = sorted(_pages(settings["nav"]))
    written = [p.name for p in (ROOT / "docs").glob("*.md") if p.name != "README.md"]
    assert pages == sorted(["index.md", "overview.md", *written])
    assert settings["theme"]["font"] is False


@pytest.mark.parametrize(
    ("folder", "text", "found"),
    [
        ("", "[a](docs/kafka.md#errors)", "[a](kafka.md#errors)"),
        ("", "[a](docs/README.md)", "[a](overview.md)"),
        ("", "[a](examples/orders.ipynb) b", "a b"),
        ("", "[a](#python)", "[a](#python)"),
        ("", "[a](https://paimon.apache.org)", "[a](https://paimon.apache.org)"),
        ("docs", "[a](../README.md#on-s3)", "[a](index.md#on-s3)"),
        ("docs", "[a](kafka.md)", "[a](kafka.md)"),
        ("docs", "[`a`](../state/README.md), [b](storage.md)", "`a`, [b](storage.md)"),
        ("docs", "```text\n[a](../state/README.md)\n```", "```text\n[a](../state/README.md)\n```"),
    ],
)
def test_links_lead_to_pages_of_the_site(site: ModuleType, folder: str, text: str, found: str) -> None:
    assert site.as_page(text, ROOT / folder) == found


@pytest.mark.parametrize(
    ("html", "is_fetched"),
    [
        ('<script src="https://cdn/x.js">', True),
        ('<link rel="stylesheet" href="//fonts/x">', True),
        ("<style>@import x</style>", True),
        ('<script src="assets/x.js">', False),
        ('<a href="https://paimon.apache.org">', False),
        ('<link rel="icon" href="assets/x.png">', False),
    ],
)
def test_what_a_page_fetches_from_elsewhere_is_found(site: ModuleType, html: str, is_fetched: bool) -> None:
    assert bool(site._FETCHED.search(html)) == is_fetched
