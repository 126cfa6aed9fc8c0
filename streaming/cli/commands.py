"""All commands of the program. Importing their modules registers them."""

import signal
from collections.abc import Sequence

from bucketline.streaming.cli import (
    bad_records_command,
    maintain_commands,
    offsets,
    plan_commands,
    read_commands,
    ship,
    spark_side,
    sql_command,
    status,
    table_commands,
    version_commands,
)
from bucketline.streaming.cli.program import program

__all__ = ["main", "program"]

COMMANDS = (
    bad_records_command,
    table_commands,
    maintain_commands,
    offsets,
    plan_commands,
    read_commands,
    ship,
    spark_side,
    sql_command,
    status,
    version_commands,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits with its exit code. `arguments` are by default those of the process."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on an interrupt is reported in one line
    program.main(arguments)
