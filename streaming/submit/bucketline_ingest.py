"""`spark-submit ... "$(bucketline job-file)" --conf-file F.yaml`: the same as `bucketline ingest` with that file."""

import sys

from bucketline.streaming.start import main

if __name__ == "__main__":
    main(["ingest", *sys.argv[1:]])
