"""No call that only Linux has, without a way round: macOS is not run, and nothing is to stand in its way."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINUX_ONLY = {
    "sched_getaffinity",
    "sched_setaffinity",
    "posix_fadvise",
    "posix_fallocate",
    "memfd_create",
    "pidfd_open",
    "copy_file_range",
    "splice",
    "eventfd",
    "getrandom",
    "O_TMPFILE",
    "O_DIRECT",
    "epoll",
    "sigtimedwait",
    "prctl",
    "renameat2",
}


def _used(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in LINUX_ONLY:
            yield node.attr


def _asked_for(tree: ast.AST) -> set[str]:
    """The names that a module asks for with `hasattr` before it uses them."""
    return {
        str(node.args[1].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "hasattr"
        and isinstance(node.args[1], ast.Constant)
    }


def test_what_only_linux_has_is_asked_for_before_it_is_used() -> None:
    found, count = [], 0
    for folder in ("conf", "state", "streaming"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            used = list(_used(tree))
            count += len(used)
            found += [f"{path.relative_to(ROOT)}: {name}" for name in used if name not in _asked_for(tree)]
    assert found == [] and count >= 2


def test_proc_is_read_where_its_absence_is_nothing_but_less_help() -> None:
    named = [
        str(path.relative_to(ROOT))
        for folder in ("conf", "state", "streaming")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if '"/proc' in path.read_text(encoding="utf-8") or "'/proc" in path.read_text(encoding="utf-8")
    ]
    assert named == ["streaming/job/children.py"], "it finds no child there, and Spark's JVM ends by its closed input"
