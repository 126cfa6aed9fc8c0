"""What is installed: every folder that holds code, and what a build makes and leaves behind."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_folder_with_modules_is_a_package() -> None:
    for top in ("streaming", "state", "conf"):
        for module in (ROOT / top).rglob("*.py"):
            assert (module.parent / "__init__.py").exists(), module


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """A clean clone of the checkout with its changes, what was built of it, and what the build said."""
    clone, output = tmp_path_factory.mktemp("clone") / "tree", tmp_path_factory.mktemp("built")
    _run("git", "clone", "-q", str(ROOT), str(clone))
    for name in ("pyproject.toml", "MANIFEST.in", ".ci/wheel/copying_backend.py"):
        (clone / name).write_bytes((ROOT / name).read_bytes())
    hooks = (
        "import sys; sys.path.insert(0, '.ci/wheel'); import copying_backend as b; "
        f"b.get_requires_for_build_wheel(); b.build_wheel({str(output)!r}); b.build_sdist({str(output)!r})"
    )
    return clone, output, _run(sys.executable, "-W", "default", "-c", hooks, cwd=clone)


def _run(*command: str, cwd: Path | None = None) -> str:
    quiet = {"PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | quiet,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_build_leaves_nothing_in_the_checkout(built: tuple[Path, Path, str]) -> None:
    clone, _, _ = built
    left = _run("git", "status", "--porcelain", "--ignored", cwd=clone).splitlines()
    assert [line for line in left if not line.startswith(" M")] == []


def test_the_same_commit_gives_the_same_bytes_and_what_is_built_names_it(
    built: tuple[Path, Path, str], tmp_path: Path
) -> None:
    """Built again in another folder, whose files have other times, and a wheel from the sdist as well."""
    clone, output, _ = built
    commit = _run("git", "rev-parse", "HEAD", cwd=clone).strip()
    named = zipfile.ZipFile(next(output.glob("*.whl"))).read("bucketline/commit.txt").decode().strip()
    assert named.removesuffix("-changed") == commit
    other = tmp_path / "other"
    shutil.copytree(clone, other, symlinks=True)
    for path in other.rglob("*.py"):
        os.utime(path, (1_700_000_000, 1_700_000_000), follow_symlinks=False)
    hooks = (
        "import sys; sys.path.insert(0, '.ci/wheel'); import copying_backend as b; "
        f"b.build_wheel({str(tmp_path)!r}); b.build_sdist({str(tmp_path)!r})"
    )
    _run(sys.executable, "-c", hooks, cwd=other)
    for first in output.iterdir():
        assert (tmp_path / first.name).read_bytes() == first.read_bytes(), first.name
    with tarfile.open(next(output.glob("*.tar.gz"))) as archive:
        found = archive.extractfile(
            f"{next(output.glob('*.tar.gz')).name.removesuffix('.tar.gz')}/src/bucketline/commit.txt"
        )
        assert found is not None and found.read().decode().strip() == named


def test_a_build_warns_of_nothing(built: tuple[Path, Path, str]) -> None:
    assert "Warning" not in built[2] and "!!" not in built[2]


def test_a_wheel_holds_all_modules_the_templates_and_the_license_and_no_more(built: tuple[Path, Path, str]) -> None:
    clone, output, _ = built
    names = zipfile.ZipFile(next(output.glob("*.whl"))).namelist()
    modules = [n for n in names if n.endswith(".py")]
    assert len(modules) == 2 + sum(1 for top in ("streaming", "state", "conf") for _ in (clone / top).rglob("*.py"))
    others = {n.partition("/")[2] for n in names if not n.endswith(".py")}
    licenses = {"licenses/LICENSE", "licenses/NOTICE"}
    metadata = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt"}
    assert (
        others
        == {"py.typed", "commit.txt", "conf/templates/job.yaml", "conf/templates/spark-defaults.conf"}
        | licenses
        | metadata
    )


def test_an_sdist_holds_what_builds_the_wheel_and_what_people_read(built: tuple[Path, Path, str]) -> None:
    with tarfile.open(next(built[1].glob("*.tar.gz"))) as archive:
        names = {n.partition("/")[2] for n in archive.getnames()}
    asked = {"LICENSE", "NOTICE", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "pyproject.toml"}
    assert (
        asked | {".ci/wheel/copying_backend.py", "src/bucketline/conf/templates/job.yaml", "src/bucketline/py.typed"}
        <= names
    )
    assert not [n for n in names if n.startswith(("tests/", ".git/", "build/"))]
