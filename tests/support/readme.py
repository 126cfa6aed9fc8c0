"""The README of the repository as tests see it: its blocks of code by language, and its tables."""

import re
from dataclasses import dataclass
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPARK, _ELSEWHERE = "pyspark", ("confluent_kafka", "pypaimon")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block; `line` is that of its first line of code, counted from 1."""

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


def blocks(language: str) -> list[Block]:
    """The blocks of a language, in order."""
    text = README.read_text(encoding="utf-8")
    found = (Block(m[1], m[2], text.count("\n", 0, m.start()) + 2) for m in _BLOCK.finditer(text))
    return [block for block in found if block.language == language]


def section(title: str) -> str:
    """The text below a heading of the second level, up to the next one."""
    _, _, rest = README.read_text(encoding="utf-8").partition(f"\n## {title}\n")
    assert rest, f"README.md has no section {title!r}"
    return rest.partition("\n## ")[0]


def run(code: list[Block], names: dict[str, object]) -> None:
    """Runs blocks one after the other with the same names, as if they were typed; errors tell the README's lines."""
    for block in code:
        exec(compile("\n" * (block.line - 1) + block.code, str(README), "exec"), names)
