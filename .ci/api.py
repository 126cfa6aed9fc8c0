"""Writes `docs/api.md`: the public names of `bucketline`, their signatures and docstrings. Run by `.ci/run api`."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any

import bucketline
from bucketline.state.store.doctor.finding import Finding
from bucketline.state.store.maintenance.expiry import ExpireResult
from bucketline.state.store.maintenance.orphans import OrphanResult

PAGE = Path(__file__).resolve().parents[1] / "docs" / "api.md"
HEAD = """# API reference

*For anyone who calls bucketline from Python.*

The public names of `import bucketline as bl`. `.ci/run api` makes this page from
the docstrings; change the docstrings, not this page.

`Data` is a `pyarrow.Table`, `RecordBatch` or `RecordBatchReader`, or anything with `__arrow_c_stream__`. `Filter` is a
condition as SQL text or a `pyarrow.compute.Expression`. `Version` is the id of a snapshot or the name of a tag. Every
function raises subclasses of `BucketlineError`; [errors](errors.md) says what to do about each.
"""
FIRST = ("create_table", "open_table", "Table", "catalog", "Catalog", "WriteResult", "TableSink", "compact", "rescale")
MEMBERS = ("Table", "Catalog")
"""Classes whose methods are shown, those of their bases first."""
RESULTS: tuple[type, ...] = (ExpireResult, OrphanResult, Finding)
WIDTH = 110

_Definition = ast.FunctionDef | ast.ClassDef


def page() -> str:
    """The text of the page."""
    names = [n for n in bucketline.__all__ if not n.startswith("_")]
    errors = [n for n in names if n.endswith("Error")]
    changes = [n for n in names if n not in (*FIRST, *errors)]
    parts = [HEAD]
    for title, group in (("Tables and sinks", FIRST), ("Schema changes", changes), ("Errors", errors)):
        parts += [f"## {title}\n", *(part for n in group for part in _described(n, getattr(bucketline, n)))]
    parts += ["## Results\n", *(part for kind in RESULTS for part in _described(kind.__name__, kind))]
    return "\n".join(parts)


def _described(name: str, found: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if isinstance(found, UnionType):
        yield f"One of {', '.join(f'`{kind.__name__}`' for kind in found.__args__)}.\n"
        return
    definition = _defined(found, name)
    if isinstance(definition, ast.FunctionDef):
        yield from _documented(definition, "")
        return
    bases = [f"`{b}`" for b in map(ast.unparse, definition.bases) if b in (*bucketline.__all__, "int")]
    yield from [f"A subclass of {bases[0]}.\n"] if bases else []
    yield from [f"Code: `{found.code}`.\n"] if issubclass(found, bucketline.BucketlineError) else []
    fields = [ast.unparse(n) for n in definition.body if isinstance(n, ast.AnnAssign)]
    if is_dataclass(found) and name not in MEMBERS:
        yield _code(f"{name}(", [f.replace("field(default_factory=dict)", "{}") for f in fields], ")")
    yield from _text(definition)
    for member in _members(found) if name in MEMBERS else ():
        yield f"#### {name}.{member.name}\n"
        yield from _documented(member, f"{name}.")


def _members(kind: type) -> Iterator[ast.FunctionDef]:
    """The public methods and properties of a class, those of its bases first."""
    for base in reversed(kind.__mro__):
        body = _defined(base, base.__name__).body if base.__module__.startswith("bucketline") else []
        for member in body:
            if isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
                yield member


def _documented(definition: ast.FunctionDef, owner: str) -> Iterator[str]:
    result = f" -> {ast.unparse(definition.returns)}" if definition.returns else ""
    if any(ast.unparse(d) == "property" for d in definition.decorator_list):
        yield f"```python\n{owner}{definition.name}{result.replace(' -> ', ': ')}\n```\n"
    else:
        yield _code(f"{owner}{definition.name}(", _parameters(definition.args, method=bool(owner)), f"){result}")
    yield from _text(definition)


def _parameters(given: ast.arguments, *, method: bool) -> list[str]:
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    shown = [_parameter(a, d) for a, d in zip(plain, defaults, strict=True)][method:]
    rest = [_parameter(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    star = [f"*{_parameter(given.vararg, None)}"] if given.vararg else ["*"] if rest else []
    return [*shown, *star, *rest]


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(argument) + (f" = {ast.unparse(default)}" if default else "")


def _code(head: str, parts: list[str], tail: str) -> str:
    one = head + ", ".join(parts) + tail
    lines = one if len(one) <= WIDTH else head + "\n" + "".join(f"    {p},\n" for p in parts) + tail
    return f"```python\n{lines}\n```\n"


def _text(definition: _Definition) -> Iterator[str]:
    text = ast.get_docstring(definition)
    assert text, f"{definition.name} is public and has no docstring"
    yield text + "\n"


def _defined(found: Any, name: str) -> _Definition:
    tree = ast.parse(Path(inspect.getsourcefile(found) or "").read_text(encoding="utf-8"))
    (definition,) = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name]
    return definition


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
