"""state/store does and decides nothing: a module of it that reaches no IO has a reason there, or belongs elsewhere."""

import ast
import re
from pathlib import Path

STORE = Path(__file__).parents[2] / "state" / "store"
IO_ROOMS = {"storage", "server"}
IO_PACKAGES = {
    "concurrent",
    "http",
    "importlib",
    "os",
    "queue",
    "random",
    "requests",
    "rocksdict",
    "shutil",
    "socket",
    "ssl",
}
IO_PACKAGES |= {"tempfile", "threading", "time", "urllib", "uuid"}
IO_MODULES = {"pyarrow.dataset", "pyarrow.fs", "pyarrow.orc", "pyarrow.parquet"}
PREFIX = "bucketline.state.store."


def _imports(path: Path) -> set[str]:
    """What a module imports: modules, and names of `from` as if they were modules."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def _without_io() -> set[str]:
    """The modules of state/store that reach neither a package that does IO nor a room of storage, as paths below it."""
    paths = [path for path in STORE.rglob("*.py") if path.name != "__init__.py"]
    imported = {path.relative_to(STORE).as_posix(): _imports(path) for path in paths}
    reaching = {
        name
        for name, found in imported.items()
        if name.split("/")[0] in IO_ROOMS or found & IO_MODULES or {f.split(".")[0] for f in found} & IO_PACKAGES
    }
    own = {
        name: {f.removeprefix(PREFIX).replace(".", "/") + ".py" for f in found if f.startswith(PREFIX)}
        for name, found in imported.items()
    }
    while more := {name for name, found in own.items() if name not in reaching and found & reaching}:
        reaching |= more
    return imported.keys() - reaching


def test_each_has_a_reason_in_the_readme() -> None:
    readme = (STORE / "README.md").read_text(encoding="utf-8").partition("## Modules here that reach no IO")[2]
    assert (
        set(re.findall(r"`([a-z0-9_]+/[a-z0-9_/]+\.py)`", readme)) - {"tests/unit/test_modules_without_io.py"}
        == _without_io()
    )
