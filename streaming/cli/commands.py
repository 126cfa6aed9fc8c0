"""Where the program starts: every module of commands is imported, so that the program knows them all."""

import signal
from collections.abc import Sequence

from bucketline.streaming.cli import create_command as make
from bucketline.streaming.cli import maintain_commands as care
from bucketline.streaming.cli import offsets, plan_commands, ship, spark_side, status
from bucketline.streaming.cli import read_commands as look
from bucketline.streaming.cli.program import program

__all__ = ["main", "program"]

COMMANDS = (care, look, make, offsets, plan_commands, ship, spark_side, status)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line, or the command that is given, and exits with its code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on an interrupt is reported in one line
    program.main(arguments)
