"""The README of the repository and the pages of `docs/` as tests see them: blocks of code by language, and sections."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = (README, *sorted(DOCS.glob("*.md")))

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
