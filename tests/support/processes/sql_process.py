"""SQL text in a process of its own, which stops itself (SIGSTOP) when it first opens a data file to read.

`python -m tests.support.processes.sql_process WAREHOUSE TEXT` prints what the last statement gives, as JSON.
"""

import json
import os
import signal
import subprocess
import sys
from typing import Any

import bucketline as bl
from bucketline.state.store.storage.local_io import LocalIO


def start_stopping(warehouse: str, text: str) -> "subprocess.Popen[str]":
    """The process, once it has stopped itself."""
    command = [sys.executable, "-m", "tests.support.processes.sql_process", warehouse, text]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status), f"it ended without opening a data file: {status}"
    return process


def main(warehouse: str, text: str) -> None:
    opened, is_first = LocalIO.open_input, True

    def stopping(self: LocalIO, path: str) -> Any:
        nonlocal is_first
        if is_first and "/bucket-" in path:
            is_first = False
            os.kill(os.getpid(), signal.SIGSTOP)
        return opened(self, path)

    LocalIO.open_input = stopping  # type: ignore[method-assign]
    print(json.dumps(bl.sql(None, text, warehouse).to_pylist()))


if __name__ == "__main__":
    main(*sys.argv[1:])
