"""Copies of this library in which one text stands in place of another: a hole, or a line that is broken."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, run
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
_COPIED = ("conf", "state", "streaming", "src", "tests")
_FILES = ("pyproject.toml", "README.md")


@dataclass(frozen=True)
class Edit:
    """A text that stands once in a module, and the text `instead`; `was` says what harm the edit can do to a table."""

    name: str
    module: str
    text: str
    instead: str
    was: str

    @property
    def fits(self) -> bool:
        """Whether the text is in its module, once."""
        return (ROOT / self.module).read_text().count(self.text) == 1


@contextmanager
def edited(edit: Edit) -> Iterator[Path]:
    """A copy of the tree with the edit. Raises ValueError where its text is not there once."""
    if not edit.fits:
        raise ValueError(f"{edit.name}: {edit.module} does not have its text once")
    with TemporaryDirectory(prefix="edited-") as name:
        folder = Path(name)
        skipped = shutil.ignore_patterns("golden", "__pycache__", "java", "bench")
        for part in _COPIED:
            shutil.copytree(ROOT / part, folder / part, symlinks=True, ignore=skipped)
        for file in _FILES:
            shutil.copy(ROOT / file, folder / file)
        module = folder / edit.module
        module.write_text(module.read_text().replace(edit.text, edit.instead))
        yield folder


def run_in(folder: Path, arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code of a program that uses the copy, and its output."""
    paths = os.pathsep.join((f"{folder}/src", str(folder)))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = run(arguments, cwd=folder, env=environment, capture_output=True, stdin=DEVNULL, text=True, check=False)
    return done.returncode, done.stdout + done.stderr
