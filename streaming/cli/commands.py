"""Where the program starts: every module of commands is imported, so that the program knows them all."""

from bucketline.streaming.cli import care, look, make, offsets, ship, spark_side, status
from bucketline.streaming.cli.program import program

__all__ = ["main", "program"]

COMMANDS = (care, look, make, offsets, ship, spark_side, status)


def main() -> None:
    """Runs the command line and exits with its code."""
    program.main()
