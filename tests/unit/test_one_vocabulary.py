"""A name of a class or a type stands for one thing in the code, so that it can be looked up."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def definitions() -> Iterator[tuple[str, str, str]]:
    """Name, what it is, and the module, of each class and alias that others may import."""
    for folder in ("conf", "state", "streaming"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            module = str(path.relative_to(ROOT))
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    yield node.name, f"class of {module}", module
                elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    yield node.targets[0].id, ast.unparse(node.value).replace("npt.", ""), module
                elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                    yield node.target.id, ast.unparse(node.value).replace("npt.", ""), module


def test_no_name_stands_for_two_things() -> None:
    meant: dict[str, dict[str, str]] = defaultdict(dict)
    for name, what, module in definitions():
        is_type = name[0].isupper() and not name.isupper() and not what.startswith("TypeVar(")
        if is_type:
            meant[name].setdefault(what, module)
    several = {name: sorted(places.values()) for name, places in meant.items() if len(places) > 1}
    assert several == {}
