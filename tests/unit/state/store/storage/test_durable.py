"""What survives a power cut on a POSIX file system: content is made durable before its name, and then the name.

No file system of a test loses power, so the order of the calls to the system is what is asked for.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bucketline.state.store.storage.local_io import LocalIO


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The calls that make something durable, or give it a name, in order."""
    made: list[str] = []
    sync, link = os.fsync, os.link

    def fsync(descriptor: int) -> None:
        found = os.fstat(descriptor)
        made.append("sync folder" if stat.S_ISDIR(found.st_mode) else f"sync {found.st_size} bytes")
        sync(descriptor)

    def linked(source: str, target: str) -> None:
        made.append("link")
        link(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", linked)
    yield made


def test_a_snapshot_is_durable_before_it_is_published_and_its_name_before_that_is_said(
    tmp_path: Path, calls: list[str]
) -> None:
    assert LocalIO().publish(str(tmp_path / "snapshot-1"), b"12345")
    assert calls == ["sync 5 bytes", "link", "sync folder"]


def test_a_metadata_file_is_durable_once_it_is_written(tmp_path: Path, calls: list[str]) -> None:
    LocalIO().write_new(str(tmp_path / "manifest-1"), b"12345")
    assert calls == ["sync 5 bytes", "sync folder"]


def test_a_data_file_is_durable_once_it_is_closed(tmp_path: Path, calls: list[str]) -> None:
    with LocalIO().open_output(str(tmp_path / "data-1")) as out:
        out.write(b"12345")
        assert calls == []
    assert calls == ["sync 5 bytes", "sync folder"]
    assert Path(tmp_path / "data-1").read_bytes() == b"12345"
