"""`bucketline compactor` as a process of its own, which a test may kill."""

import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

from bucketline.state.plans.plan import ItemState
from bucketline.state.store.plans.plan_files import PlanFolder
from bucketline.state.store.table.table import Table, handle_of, open_table


def start(table: Table, storage: Path | None = None) -> subprocess.Popen[str]:
    """A compactor of the table; `storage` is a file with storage options."""
    command = [
        sys.executable,
        "-m",
        "bucketline.streaming",
        "compactor",
        table.uri,
        *([] if storage is None else ["--storage-file", str(storage)]),
        "--poll",
        "50 ms",
        "--lease",
        "1 s",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until_up(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None and process.stderr.readline() == "waiting for plans of 1 table\n"


def wait_until_closed(table: Table, seconds: float) -> list[ItemState]:
    """The states of all items, once all are closed or the time is over."""
    folder = PlanFolder(handle_of(table).io, table.path)
    end = time.monotonic() + seconds
    while True:
        listing = folder.list()
        plans = list(folder.plans(listing).values())
        if all(listing.is_closed(p) for p in plans) or time.monotonic() > end:
            found = [folder.result(p, i.number) for p in plans for i in p.items]
            return [ItemState.REQUESTED if r is None else r.state for r in found]
        time.sleep(0.05)  # other processes have to get on


def left_files(table: Table, seconds: float) -> list[str]:
    """The files that nothing names, once there is none or the time is over."""
    end = time.monotonic() + seconds
    while True:
        found = [f.path for f in open_table(table.path).remove_orphan_files(older_than=timedelta(0)).files]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.2)  # other processes have to get on


def wait_until_claimed(table: Table, seconds: float) -> None:
    """Returns once somebody works on an item."""
    folder = PlanFolder(handle_of(table).io, table.path)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        listing = folder.list()
        found = [folder.view(listing, p, i.number) for p in folder.plans(listing).values() for i in p.items]
        if any(view.state is ItemState.LEASED for view in found):
            return
        time.sleep(0.05)  # other processes have to get on
    raise AssertionError("nobody claims an item")
