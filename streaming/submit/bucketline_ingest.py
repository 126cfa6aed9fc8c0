"""`spark-submit ... "$(bucketline job-file)" --conf-file F.yaml`: does the same as `bucketline ingest` with that file.

With `compactor PATH...` instead of the options it does the same as `bucketline compactor --spark PATH...`.
"""

import sys
from collections.abc import Sequence

from bucketline.streaming.start import main


def command_of(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments of `bucketline` that do what the arguments of spark-submit ask for."""
    if arguments[:1] == ["compactor"]:
        return ["compactor", "--spark", *arguments[1:]]
    return ["ingest", *arguments]


if __name__ == "__main__":
    main(command_of(sys.argv[1:]))
