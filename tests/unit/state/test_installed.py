"""Installed packages that are too old are refused in one line, before anything that would fail is loaded; the oldest
releases are the same everywhere they are written."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.installed import OLDEST, check_installed, check_releases

ROOT = Path(__file__).parents[3]


def _installed(folder: Path, *names: str) -> str:
    for name in names:
        (folder / f"{name}.dist-info").mkdir(parents=True)
    return str(folder)


def test_the_oldest_releases_are_those_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    of_tests = ("test", "tools", "bench")
    texts = [*project["dependencies"], *(t for name, e in extras.items() if name not in of_tests for t in e)]
    stated = {}
    for text in texts:
        match = re.match(r"([A-Za-z0-9-]+)(?:\[[a-z]+\])?>=([0-9.]+)", text)
        assert match is not None, text
        stated[match[1].lower()] = match[2]
    assert stated == OLDEST
    for text in extras["tools"]:
        name, _, oldest = re.sub(r"\[.*\]", "", text).partition(">=")
        assert OLDEST.get(name, oldest) == oldest, f"{name} has another oldest release in the extra tools"


def test_the_script_for_the_oldest_releases_prints_those_of_pyproject() -> None:
    done = subprocess.run([sys.executable, ROOT / ".ci/oldest.py"], capture_output=True, text=True, check=True)
    printed = dict(line.split("==") for line in done.stdout.splitlines())
    assert {name.lower(): oldest for name, oldest in printed.items()}.items() >= OLDEST.items()
    assert "pytest" in printed and "ruff" not in printed


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["pyarrow-18.1.0"], "pyarrow 18.1.0 is too old: bucketline needs 22.0.0 or later"),
        (["pyarrow-21.0.0"], "pyarrow 21.0.0 is too old"),
        (["sqlglot-30.9.0", "pyarrow-26.0.1"], "sqlglot 30.9.0 is too old: bucketline needs 30.22 or later"),
        (["PyYAML-5.4.1"], "pyyaml 5.4.1 is too old"),
        (["confluent_kafka-2.4.0"], "confluent-kafka 2.4.0 is too old"),
        (["pyarrow-18.0.0.dev1"], "pyarrow 18.0.0 is too old"),
    ],
)
def test_a_package_that_is_too_old_is_named_with_what_is_needed(tmp_path: Path, names: list[str], found: str) -> None:
    with pytest.raises(OptionError, match=re.escape(found)):
        check_releases([_installed(tmp_path, *names)])


@pytest.mark.parametrize(
    "names",
    [
        ["pyarrow-22.0.0", "numpy-1.26.0", "numpy-9", "other-0.1", "pyarrow_x-1.0", "click-8.10.0"],
        ["pyarrow-18.0.0", "pyarrow-26.0.1"],  # left behind by an upgrade
        ["PyArrow-odd"],
    ],
)
def test_what_is_new_enough_or_unknown_is_taken(tmp_path: Path, names: list[str]) -> None:
    check_releases([_installed(tmp_path, *names), str(tmp_path / "nowhere"), ""])
    check_installed()


def test_the_first_folder_that_has_a_package_counts(tmp_path: Path) -> None:
    newer, older = _installed(tmp_path / "a", "pyarrow-26.0.1"), _installed(tmp_path / "b", "pyarrow-18.0.0")
    check_releases([newer, older])
    with pytest.raises(OptionError, match=r"pyarrow 18\.0\.0"):
        check_releases([older, newer])


def test_the_program_and_the_package_refuse_it_in_one_line(tmp_path: Path) -> None:
    path = os.pathsep.join([_installed(tmp_path, "pyarrow-18.0.0"), *sys.path])
    run = [sys.executable, "-m", "bucketline.streaming", "scan", "/nowhere"]
    done = subprocess.run(run, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 3 and done.stderr.startswith(
        "error [OPTION]: pyarrow 18.0.0 is too old: bucketline needs"
    )
    assert len(done.stderr.splitlines()) == 1
    use = [sys.executable, "-c", "import bucketline; print(bucketline.__version__); bucketline.open_table"]
    done = subprocess.run(use, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert (
        done.stdout
        and done.returncode
        and done.stderr.splitlines()[-1].startswith("bucketline.conf.errors.OptionError: pyarrow 18.0.0")
    )


def test_a_task_on_an_executor_refuses_it(tmp_path: Path) -> None:
    path = os.pathsep.join([_installed(tmp_path, "fastavro-1.8.0"), *sys.path])
    task = [sys.executable, "-c", "from bucketline.streaming.worker import begin_task; begin_task()"]
    done = subprocess.run(task, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert done.stderr.splitlines()[-1].startswith("bucketline.conf.errors.OptionError: fastavro 1.8.0 is too old")
