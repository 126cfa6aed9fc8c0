"""An earlier commit of this repository as a program of its own: what a user has installed before an upgrade."""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]

FIRST_RELEASE = "75f40c6"


class HistoryMissingError(RuntimeError):
    """The checkout has no history to build an old release from."""


def unpack_release(commit: str, folder: Path) -> "OldRelease":
    """The files of a commit, in a new folder. Raises HistoryMissingError with the remedy where git does not have it."""
    archive = subprocess.run(["git", "archive", "--format=tar", commit], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode != 0:
        raise HistoryMissingError(
            f"the checkout does not hold commit {commit}, an old release: run `git fetch --unshallow` (CI: clone "
            f"without a depth). git says: {archive.stderr.decode(errors='replace').strip()}"
        )
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        # Python 3.11.4 and later warn without a filter; earlier ones know none.
        options: dict[str, Any] = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
        files.extractall(folder, **options)
    return OldRelease(folder)


class OldRelease:
    """Runs modules and programs with the code in `folder`; the packages it needs are those of this Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Starts Python with these arguments, in a process group of its own; what it prints is added to `log`."""
        with log.open("ab") as out:
            return subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(map(str, (self.folder / ".ci" / "tree", self.folder))),
                    "PYSPARK_PYTHON": sys.executable,
                    "PYSPARK_DRIVER_PYTHON": sys.executable,
                },
                start_new_session=True,
            )

    def die_at(self, jobs: Sequence[Mapping[str, Any]], log: Path) -> int:
        """Runs jobs over the input in their folders, each to its death (`old_deaths`), and gives back the exit code.

        A job is what `StreamJob` of that commit is made of.
        """
        program = Path(__file__).with_name("old_deaths.py")
        process = self.start(["-P", str(program), json.dumps([dict(job) for job in jobs])], log)
        try:
            return process.wait(400)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def where(self, log: Path) -> str:
        """Where its `bucketline` is imported from."""
        program = "import bucketline.state.store.table as t; print(t.__file__)"
        assert self.start(["-c", program], log).wait(60) == 0, log.read_text()
        return log.read_text().splitlines()[-1]
