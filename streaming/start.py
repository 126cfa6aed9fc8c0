"""Where the program `bucketline` starts. An interrupt while the modules are being loaded ends the program without a
traceback.
"""

import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from bucketline.conf.errors import OptionError
from bucketline.state.installed import check_installed

_CONFIGURATION = 3
"""The exit code for errors that the caller has to correct, as in `cli/program.py`, which is not loaded yet."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command and exits with its exit code. `arguments` are the arguments of the command line; None means the
    arguments of this process.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        check_installed()
    except OptionError as e:
        print(f"error [{e.code}]: {e.message}", file=sys.stderr)
        sys.exit(_CONFIGURATION)
    import_module("bucketline.streaming.cli").main(arguments)
