"""The code of `docs/` runs as it stands: the rule is in `docs/README.md`.

Python without Spark runs here, page by page, as if it were typed below the tables that `_prepared` makes; Python with
Spark in `tests/spark/test_readme_spark.py`; keys in YAML are those of a job. What is not run has a comment above it.
"""

import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

import bucketline as bl
from bucketline.conf.resolve import check_key, read_settings
from tests.support.pages.readme import DOCS, Block, blocks, run

PAGES = [page for page in sorted(DOCS.glob("*.md")) if page.name != "api.md"]
NOT_RUN = re.compile(r"<!-- not run: (?P<why>[^\n]+) -->\n\n?$")
COLUMNS = "id BIGINT NOT NULL, customer STRING, status STRING, amount DECIMAL(12, 2), remark STRING, dt STRING NOT NULL"
PARTS = ("tables", "rules", "global", "scrape_configs", "services", "token", "source_labels")
"""First keys of YAML that is no job, as a configuration of Prometheus."""


def why_not(block: Block) -> str | None:
    """Why a block is not run, as the page says above it."""
    lines = block.page.read_text(encoding="utf-8").splitlines(keepends=True)
    found = NOT_RUN.search("".join(lines[: block.line - 2]))
    return None if found is None else found["why"]


def _prepared(folder: Path) -> dict[str, object]:
    """The names that pages go on from."""
    table = bl.create_table(
        "warehouse/default.db/orders", COLUMNS, primary_key=["id", "dt"], partition_by=["dt"], options={"bucket": "1"}
    )
    days = ["2024-12-31", "2025-12-31", "2026-01-01"]
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "customer": ["Ada", "Grace", "Edsger"],
            "status": ["void", "new", "new"],
            "amount": pa.array([Decimal("1.00"), Decimal("2.00"), Decimal("3.00")], pa.decimal128(12, 2)),
            "remark": pa.array([None] * 3, pa.string()),
            "dt": days,
        }
    )
    table.write(rows)
    new = rows.slice(2)
    return {"bl": bl, "pa": pa, "table": table, "orders": table, "rows": new, "source": new, "changes": new}


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(not b.needs_spark for b in blocks("python", p))], ids=lambda p: p.name
)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = _prepared(tmp_path)
    if not any("bl.create_table(" in block.code for block in blocks("python", page)):
        bl.create_table("warehouse/shop.db/orders", COLUMNS, primary_key=["id", "dt"], options={"bucket": "1"})
    for block in blocks("python", page):
        if block.needs_spark or why_not(block):
            continue
        here = block.code.replace('"/data/warehouse"', f'"{tmp_path}/data"')
        run([Block(page, "python", here, block.line)], names)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks("yaml", p)], ids=lambda p: p.name)
def test_the_keys_of_a_job_in_a_page_exist(page: Path) -> None:
    for block in blocks("yaml", page):
        first = next(iter(yaml.safe_load(block.code)), None)
        if why_not(block) or first in PARTS:
            continue
        for key, setting in read_settings(block.code, name=f"{page.name}.yaml").items():
            check_key(key, f"{page.name}, line {block.line}: {setting.text}")


def test_what_is_not_run_says_why() -> None:
    marked = [(b.page.name, why_not(b)) for page in PAGES for lang in ("python", "yaml") for b in blocks(lang, page)]
    told = [(name, why) for name, why in marked if why is not None]
    assert all(len(why.split()) >= 2 for _, why in told)
    assert sum(page.read_text().count("<!-- not run:") for page in PAGES) == len(told), "each stands above a block"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_a_block_names_its_language(page: Path) -> None:
    """What no test looks at is `text`."""
    fences = re.findall(r"^```(\w*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    known = {"python", "bash", "yaml", "text", "ini", "sql", "mermaid", "dockerfile", "json", ""}
    assert {*fences[::2]} <= known - {""} and {*fences[1::2]} <= {""}
