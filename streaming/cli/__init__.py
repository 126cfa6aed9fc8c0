"""The command line: `program` says how it ends, one module for each group of commands says what it does."""

from bucketline.streaming.cli.commands import main

__all__ = ["main"]
