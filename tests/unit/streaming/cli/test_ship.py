"""The zip for --py-files: whole, repeatable, and enough to import the package from."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from bucketline.streaming.cli.commands import program
from bucketline.streaming.cli.ship import build_zip


def test_a_process_with_only_the_zip_imports_the_package_from_it(tmp_path: Path) -> None:
    path = build_zip(tmp_path / "cache")
    code = (
        f"import sys; sys.path.insert(0, {str(path)!r});"
        "import bucketline, bucketline.conf.resolve;"
        "import bucketline.state.store.table.table, bucketline.streaming.tasks.wire;"
        "bucketline.open_table;"
        "print(*{m.__file__.split('/bucketline/')[0] for n, m in sys.modules.items() if n.startswith('bucketline')})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.stdout.strip(), done.stderr) == (str(path), "")


def test_the_zip_can_make_its_own_zip(tmp_path: Path) -> None:
    path = build_zip(tmp_path / "one")
    code = (
        f"import sys; sys.path.insert(0, {str(path)!r}); from bucketline.streaming.cli.ship import build_zip;"
        f"from pathlib import Path; print(build_zip(Path({str(tmp_path / 'two')!r})).name)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.strip() == path.name
    assert (tmp_path / "two" / path.name).read_bytes() == path.read_bytes()


def test_the_zip_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    names = zipfile.ZipFile(build_zip(tmp_path)).namelist()
    modules = {"bucketline/__init__.py", "bucketline/state/lsm/tree/pick.py", "bucketline/streaming/cli/ship.py"}
    assert modules <= set(names)
    assert "pyspark_bucketline/__init__.py" in names
    folders = ("bucketline/", "pyspark_bucketline/")
    assert not [n for n in names if not n.startswith(folders) or "__pycache__" in n or "test" in n]


def test_asking_again_gives_the_same_file_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first, second = (CliRunner().invoke(program, ["py-files"]).stdout.strip() for _ in range(2))
    assert first == second
    assert [p.name for p in (tmp_path / "bucketline").iterdir()] == [Path(first).name]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = CliRunner().invoke(program, ["py-files", "--directory", str(tmp_path / "file" / "x")])
    assert found.exit_code == 1 and found.stderr.startswith("error [STORAGE]")
