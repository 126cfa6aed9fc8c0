"""Processes that write a table whose files grow old by days at any moment, while others remove, expire and compact.

Importable, so that `forking` can start them.
"""

import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

from bucketline.conf.errors import BucketlineError
from bucketline.state.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CorruptFileError,
    StorageError,
)
from bucketline.state.store.table.table import open_table
from tests.support.processes.own_rows_worker import rows
from tests.support.storage.stopped import HOUR_MS, let_storage_age


@dataclass
class Written:
    """The ids that a writer has written, those that it may have written, those it was refused and why, and errors that
    say neither. `told` are the snapshots to which the writer was told to roll the table back."""

    ids: list[int] = field(default_factory=list)
    unclear: list[int] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    told: list[int] = field(default_factory=list)


def write_rows(path: str, writer: int, writers: int, start: Any, enough: Any, told: Any) -> None:
    """Writes ids of this writer alone, one commit each, until `enough` is set; `told` gets (writer, Written)."""
    table, written = open_table(path), Written()
    start.wait()
    for number in count():
        if enough.is_set():
            break
        new = number * writers + writer
        try:
            table.write(rows([new], number))
            written.ids.append(new)
        except CommitOutcomeUnknownError:
            written.unclear.append(new)
        except (CommitConflictError, StorageError) as e:
            written.refused.append((new, f"{type(e).__name__}: {e}"))
        except CorruptFileError as e:
            way_on = re.search(r"roll the table back to snapshot (\d+)", e.message)
            if way_on is None:
                written.wrong.append(f"id {new}: {e}")
            else:
                written.told.append(int(way_on[1]))
        except BucketlineError as e:
            written.wrong.append(f"id {new}: {type(e).__name__}: {e}")
    told.put((writer, written))


def age_files(path: str, seed: int, stop: Any, told: Any) -> None:
    """Moves the clock of the storage ahead by two days, again and again."""
    chance, times = random.Random(seed), 0
    while not stop.is_set():
        try:
            let_storage_age(Path(path), 48 * HOUR_MS)
            times += 1
        except FileNotFoundError:
            pass  # removed between the listing and now
        time.sleep(chance.random() * 0.05)
    told.put(("aged", times, []))


def remove_files(path: str, seed: int, stop: Any, told: Any) -> None:
    """Removes what no snapshot names, by the rules."""
    _repeat("removed", stop, told, lambda: len(open_table(path).remove_orphan_files(dry_run=False).files))


def expire(path: str, seed: int, stop: Any, told: Any) -> None:
    """Keeps three snapshots."""

    def keep_three() -> int:
        done = open_table(path).expire_snapshots(retain_min=1, retain_max=3, older_than=timedelta())
        return done.end - done.begin

    _repeat("expired", stop, told, keep_three)


def compact(path: str, seed: int, stop: Any, told: Any) -> None:
    """Compacts fully."""
    _repeat("compacted", stop, told, lambda: int(open_table(path).compact() is not None))


BESIDE: Sequence[Callable[[str, int, Any, Any], None]] = (age_files, remove_files, expire, compact)


def _repeat(name: str, stop: Any, told: Any, work: Callable[[], int]) -> None:
    """Tells (name, how much was done, errors). What a clean-up meets may be gone a moment later: it goes on."""
    done, errors = 0, list[str]()
    while not stop.is_set():
        try:
            done += work()
        except BucketlineError as e:
            errors.append(f"{type(e).__name__}: {e}")
        time.sleep(0.02)
    told.put((name, done, errors))
