"""The build backend of pyproject.toml: setuptools, run on a copy, so that a build leaves nothing in the checkout.

Editable installs are the exception: they point at the checkout itself.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from setuptools import build_meta

prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
build_editable = build_meta.build_editable

_COPIED = ("src", "docs", ".ci/wheel")
"""Folders that a wheel or an sdist is made of, links followed; files at the top are copied as well."""

# The import of this module has left its compiled form in the checkout.
with suppress(OSError):
    Path(__cached__).unlink()
    Path(__cached__).parent.rmdir()


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return []


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    return []


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    return []


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any = None) -> str:
    target = os.path.abspath(metadata_directory)
    with _copy():
        return str(build_meta.prepare_metadata_for_build_wheel(target, config_settings))


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    target = os.path.abspath(wheel_directory)
    metadata = None if metadata_directory is None else os.path.abspath(metadata_directory)
    with _copy():
        return str(build_meta.build_wheel(target, config_settings, metadata))


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    target = os.path.abspath(sdist_directory)
    with _copy():
        return str(build_meta.build_sdist(target, config_settings))


@contextmanager
def _copy() -> Iterator[None]:
    """Makes a copy of what is built from the working directory for as long as it lasts."""
    source = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="bucketline-build-") as scratch:
        root = Path(scratch, "tree")
        root.mkdir()
        for file in source.iterdir():
            if file.is_file():
                shutil.copy2(file, root)
        for name in _COPIED:
            if (source / name).is_dir():
                shutil.copytree(source / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        os.chdir(root)
        try:
            yield
        finally:
            os.chdir(source)
