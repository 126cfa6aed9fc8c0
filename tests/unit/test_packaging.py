"""The packages list in pyproject.toml against the folders that hold code."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def _found() -> set[str]:
    found = {"bucketline"}
    for top in ("streaming", "state", "conf"):
        for init in (ROOT / top).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT).parts
            if "_root" not in parts:
                found.add(".".join(("bucketline", *parts)))
    return found


def test_the_packages_list_names_every_folder_with_code() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert set(listed) == _found()


def test_every_folder_with_modules_is_a_package() -> None:
    for top in ("streaming", "state", "conf"):
        for module in (ROOT / top).rglob("*.py"):
            assert (module.parent / "__init__.py").exists(), module
