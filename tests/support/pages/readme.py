"""The README of the repository and the pages of `docs/` as tests see them: blocks of code by language, and sections."""

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from bucketline.state.store.table.table import create_table

ROOT = Path(__file__).resolve().parents[3]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
NOTEBOOK = ROOT / "examples" / "orders.ipynb"
PAGES = (README, *sorted(DOCS.glob("*.md")))

COLUMNS = "id BIGINT NOT NULL, customer STRING, status STRING, amount DECIMAL(12, 2), updated TIMESTAMP(6)"
OPTIONS = {"bucket": "2"}
"""The columns and options of the quickstart's table."""

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPARK, _ELSEWHERE = "pyspark", ("confluent_kafka", "pypaimon")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page; `line` is that of its first line of code, counted from 1."""

    page: Path
    language: str
    code: str
    line: int

    @property
    def needs_spark(self) -> bool:
        return f"from {_SPARK}" in self.code

    @property
    def needs_others(self) -> bool:
        """Whether it imports what is not among our own dependencies."""
        return any(f"from {name} import" in self.code for name in _ELSEWHERE)


def blocks(language: str, page: Path = README) -> list[Block]:
    """The blocks of a language in a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = (Block(page, m[1], m[2], text.count("\n", 0, m.start()) + 2) for m in _BLOCK.finditer(text))
    return [block for block in found if block.language == language]


def cells(page: Path = NOTEBOOK) -> list[Block]:
    """The cells of code of a notebook, in order."""
    found = json.loads(page.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]
    return [Block(page, "python", text, at) for at, text in enumerate(code, 1)]


def make_demo(folder: Path) -> None:
    """A small table like the one that `bucketline quickstart --directory demo` leaves, in three commits."""
    orders = create_table(str(folder / "demo" / "shop.db" / "orders"), COLUMNS, ["id"], options=OPTIONS)
    for number in range(3):
        ids = range(number * 10, number * 10 + 40)
        rows = [{"id": i, "customer": "Ada", "status": "new", "amount": Decimal(number)} for i in ids]
        orders.write(pa.Table.from_pylist(rows, schema=orders.schema))


def section(title: str, page: Path) -> str:
    """The text below a heading of the second level, up to the next one."""
    _, _, rest = page.read_text(encoding="utf-8").partition(f"\n## {title}\n")
    assert rest, f"{page.name} has no section {title!r}"
    return rest.partition("\n## ")[0]


def headings(page: Path) -> set[str]:
    """The targets that links into a page may have after `#`."""
    titles = re.findall(r"^##+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def run(code: list[Block], names: dict[str, object]) -> None:
    """Runs blocks one after the other with the same names, as if they were typed; errors name the page's lines."""
    for block in code:
        exec(compile("\n" * (block.line - 1) + block.code, str(block.page), "exec"), names)
