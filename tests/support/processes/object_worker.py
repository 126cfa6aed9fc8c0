"""A process of its own that works on a store.

`python -m tests.support.processes.object_worker WHAT STORAGE URI NUMBER COUNT` starts it.

It says `ready`, waits for a line, and says what it did then: with `publish` the numbers of the files that it was the
first to make, with `write` those of the rows that it wrote; with `write-on` it says each number once it is written.
"""

import json
import sys
import uuid

import pyarrow as pa

from bucketline.conf.errors import BucketlineError
from bucketline.state.errors import CommitConflictError
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.table.table import open_table


def main() -> None:
    what, options, uri, number, count = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
    storage: dict[str, str] = json.loads(options)
    io, root = file_io_for(uri, storage)
    io.require_publish()
    print("ready", flush=True)
    sys.stdin.readline()
    if what == "write-on":
        for n in range(count):
            if _write(uri, storage, number * count + n):
                print(number * count + n, flush=True)
        return
    if what == "publish":
        done = [n for n in range(count) if io.publish(f"{root}/snapshot/snapshot-{n}", uuid.uuid4().bytes)]
    else:
        done = [n for n in range(count) if _write(uri, storage, number * count + n)]
    print(*done, flush=True)


def _write(uri: str, storage: dict[str, str], number: int) -> bool:
    try:
        open_table(uri, storage_options=storage).write(pa.table({"number": [number]}))
    except CommitConflictError:
        # Too many others were quicker.
        return False
    except BucketlineError as e:
        raise SystemExit(f"{e.code}: {e}") from e
    return True


if __name__ == "__main__":
    main()
