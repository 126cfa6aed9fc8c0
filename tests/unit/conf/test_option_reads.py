"""Options are declared once, in `conf`, and read there alone: all other code asks for values with types."""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import bucketline.conf
from bucketline.conf.job import JOB_KEYS
from bucketline.conf.option import Option
from bucketline.conf.reader_options import READER_OPTIONS
from bucketline.conf.sink_options import SINK_OPTIONS
from bucketline.conf.sources.known_options import KAFKA_OPTIONS
from bucketline.conf.storage_options import STORAGE_OPTIONS
from bucketline.conf.table.table_options import KNOWN_KEYS

ROOT = Path(bucketline.conf.__file__).resolve().parents[1]
KEYS = {*KNOWN_KEYS, *JOB_KEYS, *SINK_OPTIONS, *KAFKA_OPTIONS, *STORAGE_OPTIONS, *READER_OPTIONS}
LOOKUPS = frozenset({"get", "find", "find_option", "is_set", "pop", "setdefault"})


def _is_key(node: ast.AST, where: ast.AST | None) -> bool:
    """Whether a node is the key of an option. Plain words are columns and members too, but not where options are."""
    if not isinstance(node, ast.Constant) or node.value not in KEYS:
        return False
    return "." in node.value or "-" in node.value or "option" in ast.unparse(where or node).lower()


def lookups(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each place of a module that declares an option or reads one by its key or its `Option`."""
    tree = ast.parse(source)
    from_conf = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bucketline.conf")
        for alias in node.names
    }
    for node in ast.walk(tree):
        found = False
        if isinstance(node, ast.Subscript):
            found = _is_key(node.slice, node.value)
        elif isinstance(node, ast.Compare):
            found = any(isinstance(op, ast.In | ast.NotIn) for op in node.ops) and _is_key(
                node.left, node.comparators[0]
            )
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            where = node.func.value if isinstance(node.func, ast.Attribute) else None
            found = name == "Option" or (name in LOOKUPS and any(_is_key(a, where or node) for a in node.args))
            found |= name == "find_option" and any(isinstance(a, ast.Name) and a.id in from_conf for a in node.args)
            if name in ("get", "find", "is_set") and where is not None:
                words = ast.unparse(where).split(".")
                found |= words[0] in from_conf and words[-1].isupper() and bool(node.args)
        if found:
            yield node.lineno, ast.unparse(node)


@pytest.mark.parametrize(
    "text",
    [
        'schema.options["bucket"]',
        'schema.options.get("partition.legacy-name", "true")',
        '"merge-engine" in options',
        'find_option(options, "subscribe")',
        "from bucketline.conf.table.table_options import BUCKET\nBUCKET.get(schema.options)",
        "from bucketline.conf.table import table_options\ntable_options.BUCKET.find(options)",
        "from bucketline.conf.sources.source_options import SERVERS\nfind_option(options, SERVERS)",
        'from bucketline.conf.option import Option\nX = Option("x", str, None, "")',
    ],
)
def test_each_way_to_read_an_option_is_known(text: str) -> None:
    assert list(lookups(text))


def test_columns_and_members_of_the_same_name_are_no_options() -> None:
    assert not list(lookups('record["bucket"], found.get("type"), "path" in e.fields'))


def test_options_are_read_in_conf_alone() -> None:
    modules = [path for folder in ("state", "streaming") for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(modules) > 200
    found = [f"{path.relative_to(ROOT)}:{line}: {text}" for path in modules for line, text in lookups(path.read_text())]
    assert not found, "\n".join(found)


def test_every_key_is_declared_once() -> None:
    declared: dict[str, dict[int, str]] = {}
    for module in pkgutil.walk_packages(bucketline.conf.__path__, "bucketline.conf."):
        for name, value in vars(importlib.import_module(module.name)).items():
            for key in (value.key, *value.fallback_keys) if isinstance(value, Option) else ():
                declared.setdefault(key, {})[id(value)] = f"{module.name}.{name}"
    assert len(declared) > 100
    twice = {key: sorted(names.values()) for key, names in declared.items() if len(names) > 1}
    assert not twice
