"""The build backend of pyproject.toml: setuptools, run on a copy, so that a build leaves nothing in the checkout.

Editable installs are the exception: they point at the checkout itself. The same commit gives the same bytes: all times
are that of the commit, and the files of an sdist are put in order. What is built names the commit (`commit.txt`).
"""

import gzip
import io
import os
import shutil
import subprocess
import tarfile
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

_COMMIT = "src/bucketline/commit.txt"
_EPOCH = "SOURCE_DATE_EPOCH"
"""The variable by which setuptools is told the time of all files in a wheel."""

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
        name = str(build_meta.build_sdist(target, config_settings))
        _put_in_order(Path(target, name), int(os.environ[_EPOCH]))
        return name


@contextmanager
def _copy() -> Iterator[None]:
    """Makes a copy of what is built from the working directory for as long as it lasts."""
    source, before = Path.cwd(), os.environ.get(_EPOCH)
    with tempfile.TemporaryDirectory(prefix="bucketline-build-") as scratch:
        root = Path(scratch, "tree")
        root.mkdir()
        for file in source.iterdir():
            if file.is_file():
                shutil.copy2(file, root)
        for name in _COPIED:
            if (source / name).is_dir():
                shutil.copytree(source / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        commit = _commit(source)
        if commit is not None:
            (root / _COMMIT).write_text(f"{commit}\n")
        for path in root.rglob("*"):
            if path.is_file():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
        os.environ[_EPOCH] = before or _time_of(source)
        os.chdir(root)
        try:
            yield
        finally:
            os.chdir(source)
            os.environ.pop(_EPOCH)
            if before is not None:
                os.environ[_EPOCH] = before


def _commit(source: Path) -> str | None:
    """The commit that is built, with `-changed` where files differ from it; None for a folder that is no checkout."""
    found = _git(source, "rev-parse", "HEAD")
    if found is None or not (source / ".git").exists():
        return None
    return f"{found}-changed" if _git(source, "status", "--porcelain", "--untracked-files=no") else found


def _time_of(source: Path) -> str:
    """Seconds of the epoch: of the commit, or of the sdist that is built from."""
    found = _git(source, "log", "-1", "--format=%ct") if (source / ".git").exists() else None
    return found or str(int((source / "pyproject.toml").stat().st_mtime))


def _git(source: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=source, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _put_in_order(archive: Path, seconds: int) -> None:
    """Writes an sdist anew: files sorted by name, all of one time and owner."""
    with tarfile.open(archive) as files:
        members = sorted(files.getmembers(), key=lambda member: member.name)
        contents = [files.extractfile(member).read() if member.isfile() else None for member in members]  # type: ignore[union-attr]
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=seconds) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as out,
    ):
        for member, content in zip(members, contents, strict=True):
            member.mtime, member.uid, member.gid, member.uname, member.gname = seconds, 0, 0, "", ""
            member.pax_headers = {}
            out.addfile(member, None if content is None else io.BytesIO(content))
