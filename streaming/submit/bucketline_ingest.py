"""`spark-submit ... "$(bucketline job-file)" --conf-file F.yaml`: the same as `bucketline ingest` with that file.

With `compactor PATH...` in place of the options it is `bucketline compactor --spark PATH...`.
"""

import sys
from collections.abc import Sequence

from bucketline.streaming.start import main


def command_of(arguments: Sequence[str]) -> list[str]:
    """The command line that the arguments of spark-submit stand for."""
    if arguments[:1] == ["compactor"]:
        return ["compactor", "--spark", *arguments[1:]]
    return ["ingest", *arguments]


if __name__ == "__main__":
    main(command_of(sys.argv[1:]))
