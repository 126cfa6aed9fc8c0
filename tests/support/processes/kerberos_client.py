"""Writes, compacts and reads a table, or only reads it. Arguments: its URI, `write` or `read`, storage options."""

import json
import sys

import pyarrow as pa

import bucketline as bl
from bucketline.conf.errors import BucketlineError


def main(uri: str, command: str, options: str) -> int:
    storage = json.loads(options)
    try:
        if command == "write":
            key = {"primary_key": ["id"], "options": {"bucket": "1"}}
            table = bl.create_table(uri, "id BIGINT NOT NULL, v STRING", storage_options=storage, **key)
            for id_, v in ((1, "a"), (2, "b"), (2, "c")):
                table.write(pa.table({"id": [id_], "v": [v]}))
            assert table.compact() == 4
        found = bl.open_table(uri, storage_options=storage).to_arrow()
    except BucketlineError as e:
        print(json.dumps({"error": e.message, "retryable": e.fields.get("retryable")}))
        return 1
    print(json.dumps(found.to_pylist()))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
