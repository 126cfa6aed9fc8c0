"""`spark-submit ... "$(bucketline job-file)" --conf-file F.yaml`: the same as `bucketline ingest` with that file."""

import sys

from bucketline.streaming.cli.commands import program

if __name__ == "__main__":
    program.main(["ingest", *sys.argv[1:]])
