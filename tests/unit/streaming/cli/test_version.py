"""`--version` names what a report of a bug needs: release, commit, Python, Spark."""

import platform
from pathlib import Path

import pyspark
import pytest
from click.testing import CliRunner

from bucketline import __version__
from bucketline.streaming.cli.commands import program
from bucketline.streaming.cli.version import commit_of, version_text

HASH = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("files", "commit"),
    [
        ({"src/bucketline/commit.txt": HASH}, "0123456789ab"),
        ({"src/bucketline/commit.txt": f"{HASH}-changed"}, "0123456789ab-changed"),
        ({".git/HEAD": HASH}, "0123456789ab"),
        ({".git/HEAD": "ref: refs/heads/main", ".git/refs/heads/main": HASH}, "0123456789ab"),
        ({".git/HEAD": "ref: refs/heads/x", ".git/packed-refs": f"# pack\n{HASH} refs/heads/x"}, "0123456789ab"),
        ({".git/HEAD": "ref: refs/heads/x"}, None),
        ({".git": "gitdir: elsewhere"}, None),
        ({}, None),
    ],
)
def test_the_commit_is_that_of_the_build_or_of_the_checkout(
    tmp_path: Path, files: dict[str, str], commit: str | None
) -> None:
    package = tmp_path / "src" / "bucketline"
    package.mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert commit_of(package) == commit
    assert ("an unknown commit" in version_text(package)) == (commit is None)


def test_the_program_prints_one_line() -> None:
    done = CliRunner().invoke(program, ["--version"])
    assert done.exit_code == 0 and done.output.count("\n") == 1
    for part in (
        f"bucketline {__version__} (",
        f"Python {platform.python_version()}",
        f"PySpark {pyspark.__version__}",
    ):
        assert part in done.output
