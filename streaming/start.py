"""Where the program `bucketline` starts. Until its modules are loaded an interrupt ends it without a traceback."""

import signal
from collections.abc import Sequence
from importlib import import_module


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line, or the command that is given, and exits with its code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    import_module("bucketline.streaming.cli").main(arguments)
