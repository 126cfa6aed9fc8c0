"""Writers that are stopped in the middle, for longer than files may wait, while orphans are removed."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bucketline.state.determinism import SYSTEM_IDS
from bucketline.state.store.table.table import open_table

HOUR_MS = 3_600_000


@dataclass
class StoppingClock:
    """The clock of a process that is stopped once, at its n-th look at it: time passes, and `meanwhile` happens."""

    at: int
    stop_ms: int
    meanwhile: Callable[[], object]
    now: int = 1_795_000_000_000
    looks: int = field(default=0)

    def now_ms(self) -> int:
        self.looks += 1
        if self.looks == self.at:
            self.now += self.stop_ms
            self.meanwhile()
        return self.now

    def local_ms(self) -> int:
        return self.now_ms()


def let_storage_age(folder: Path, age_ms: int) -> None:
    """Moves the storage's clock ahead: every file below the folder was written that much longer ago."""
    for path in folder.rglob("*"):
        if path.is_file():
            found = path.stat()
            os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns - age_ms * 1_000_000))


def age_and_clean(path: str, age_ms: int) -> Callable[[], None]:
    """What happens to a table while its writer is stopped: time passes, and orphans are removed by the rules."""

    def happen() -> None:
        let_storage_age(Path(path), age_ms)
        open_table(path).remove_orphan_files(dry_run=False)

    return happen


@dataclass
class HookedIds:
    """Fresh names; something else happens, once, as soon as there is a new data file when a name is asked for."""

    folder: Path
    meanwhile: Callable[[], object]
    is_done: bool = False

    def __post_init__(self) -> None:
        self._before = self._data_files()

    def new_uuid(self) -> str:
        if not self.is_done and self._data_files() > self._before:
            self.is_done = True
            self.meanwhile()
        return SYSTEM_IDS.new_uuid()

    def _data_files(self) -> int:
        return sum(1 for _ in self.folder.rglob("data-*"))
