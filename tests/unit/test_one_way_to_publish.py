"""There is one way from a plan to a published snapshot, and no call on it takes a handful of arguments."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_PARAMETERS = 10
PUBLISHERS = {"state/store/write/commit_change.py"}
"""Who may call `publish`."""

COMMITTERS = {
    "state/store/engine/make_visible.py",
    "state/store/maintenance/partition_expiry.py",
    "state/store/plans/item_work.py",
    "state/store/table/cycle.py",
    "streaming/batch/back_pressure.py",
    "streaming/batch/commit.py",
    "streaming/batch/finish.py",
}
"""Who may commit a change: the cycle of all writes, the steps of a batch, and compactions and drops beside both."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("conf", "state", "streaming"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def test_only_named_modules_publish() -> None:
    assert importers("bucketline.state.store.commit.publish", "publish") == PUBLISHERS


def test_only_named_modules_commit() -> None:
    assert importers("bucketline.state.store.write.commit_change", "commit_change") == COMMITTERS


def importers(module: str, function: str) -> set[str]:
    return {
        name
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == module and any(a.name == function for a in node.names)
    }


def test_no_function_has_more_parameters_than_can_be_read() -> None:
    long = [
        f"{name}:{node.lineno} {node.name}"
        for name, module in modules()
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _count(node.args) > MOST_PARAMETERS
    ]
    assert long == []


def _count(arguments: ast.arguments) -> int:
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([n for n in names if n not in ("self", "cls")])
