"""The function `main`, which starts the command-line program."""

import signal
from collections.abc import Sequence

from bucketline.streaming.cli.program import program

__all__ = ["main", "program"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits with its exit code. `arguments` are by default those of the process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on an interrupt is reported in one line
    program.main(arguments)
