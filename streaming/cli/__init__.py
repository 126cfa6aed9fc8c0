"""The command line: one module for each group of commands; `program` has the exit codes and error lines."""

from bucketline.streaming.cli.commands import main

__all__ = ["main"]
