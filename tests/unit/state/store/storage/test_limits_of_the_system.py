"""What the system refuses is a StorageError wherever it strikes, and leaves the table as it was."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from bucketline.state.commit.outcome import Unknown
from bucketline.state.errors import StorageError
from bucketline.state.store.storage.errors import storage_error
from bucketline.state.store.storage.local_io import LocalIO
from tests.support.processes.forked import forking
from tests.support.processes.limited import work
from tests.support.storage.memory_io import MemoryIO
from tests.support.tables.commit_table import CommitTable, message
from tests.support.tables.commits import data_file


def outcomes(folder: Path, mode: str, form: str, limit: str, count: int) -> dict[str, str]:
    """What each step came to. The process has ended as it should, and the table is whole."""
    context = forking()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(theirs, folder, mode, form, limit, count), daemon=True)
    process.start()
    theirs.close()
    with open(ours.fileno(), closefd=False) as lines:
        said = lines.read()
    process.join(120)
    assert process.exitcode == 0, said
    *steps, last = said.splitlines()
    assert last == "whole", said
    return dict(line.split(" ", 1) for line in steps)


@pytest.mark.parametrize("form", ["parquet", "orc", "avro"])
def test_a_data_file_that_grows_too_large_is_a_storage_error(tmp_path: Path, form: str) -> None:
    assert outcomes(tmp_path, "fixed", form, "file-size", 3000)["write"] == "StorageError STORAGE"


@pytest.mark.parametrize("mode", ["vectors", "dynamic", "cross-partition", "postpone", "append"])
def test_a_file_too_large_is_a_storage_error_in_every_bucket_mode(tmp_path: Path, mode: str) -> None:
    assert outcomes(tmp_path, mode, "parquet", "file-size", 6000)["write"] == "StorageError STORAGE"


def test_a_snapshot_that_cannot_be_written_is_no_unknown_outcome(tmp_path: Path) -> None:
    found = outcomes(tmp_path, "fixed", "parquet", "file-size", 100)
    assert found["write"] == "StorageError STORAGE" and found["tag"] == "StorageError STORAGE"


@pytest.mark.parametrize("mode", ["fixed", "cross-partition"])
@pytest.mark.parametrize("count", [0, 3, 6])
def test_too_many_open_files_are_a_storage_error(tmp_path: Path, mode: str, count: int) -> None:
    found = outcomes(tmp_path, mode, "parquet", "open-files", count)
    assert set(found.values()) <= {"ok", "StorageError STORAGE"}
    assert count > 0 or found["write"] == "StorageError STORAGE"


@dataclass
class FullDisk(MemoryIO):
    """Storage whose disk is full whenever a snapshot is published; `answers` says what each attempt learns of it."""

    answers: tuple[bool | None, ...] = ()
    attempts: int = 0

    def publish(self, path: str, data: bytes) -> bool:
        if "/snapshot/" not in path:
            return super().publish(path, data)
        self.attempts += 1
        answer = self.answers[min(self.attempts, len(self.answers)) - 1]
        full = OSError(errno.ENOSPC, "No space left on device")
        if answer is None:
            raise storage_error(path, full)
        raise storage_error(path, full, published=answer)


def full_disk(*answers: bool | None) -> tuple[CommitTable, FullDisk]:
    table = CommitTable().create()
    assert isinstance(table.storage, MemoryIO)
    return table, FullDisk(files=table.storage.files, answers=answers)


def test_a_full_disk_before_anything_is_published_is_no_unknown_outcome() -> None:
    table, disk = full_disk(False)
    with pytest.raises(StorageError, match="the disk is full; free some space"):
        table.committer(disk).commit(table.put_files([message(data_file("a"))]), user="me", identifier=1)
    assert disk.attempts > 1
    assert table.all_snapshots() == [] and table.manifest_files() == set()


def test_after_an_attempt_that_got_no_answer_a_full_disk_settles_nothing() -> None:
    table, disk = full_disk(None, False)
    outcome = table.committer(disk).commit(table.put_files([message(data_file("a"))]), user="me", identifier=1)
    assert isinstance(outcome, Unknown)


def test_a_local_disk_says_when_nothing_was_published(tmp_path: Path) -> None:
    """The folder is a file, so that the temporary file cannot be made."""
    (tmp_path / "snapshot").write_text("")
    with pytest.raises(StorageError) as caught:
        LocalIO().publish(str(tmp_path / "snapshot" / "snapshot-1"), b"{}")
    assert caught.value.fields["published"] is False


@pytest.mark.parametrize(
    ("number", "remedy", "retryable"),
    [
        (errno.ENOSPC, "the disk is full; free some space", True),
        (errno.EMFILE, "raise the limit, see `ulimit -n`", True),
        (errno.EROFS, "the file system is read-only", False),
        (errno.EACCES, "let this user read and write the folder", False),
    ],
)
def test_an_error_of_the_system_says_what_to_do(number: int, remedy: str, retryable: bool) -> None:
    found = storage_error("/data/t", OSError(number, os.strerror(number)))
    assert remedy in found.message and "/data/t" in found.message
    assert found.fields["retryable"] is retryable and found.fields["missing"] is False
