"""Where the program starts: every module of commands is imported, so that the program knows them all."""

from bucketline.streaming.cli import look, make, status
from bucketline.streaming.cli.program import program

COMMANDS = (look, make, status)


def main() -> None:
    """Runs the command line and exits with its code."""
    program.main()
