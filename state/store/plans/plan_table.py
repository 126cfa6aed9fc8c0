"""Shows a plan as a table to people, on the command line and in SQL."""

import pyarrow as pa

from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import bucket_path
from bucketline.state.plans.plan import Plan

_SCHEMA = pa.schema(
    [
        ("item", pa.int32()),
        ("bucket", pa.string()),
        ("files", pa.int32()),
        ("levels", pa.string()),
        ("output_level", pa.int32()),
        ("bytes", pa.int64()),
    ]
)


def plan_table(schema: TableSchema, plan: Plan) -> pa.Table:
    """Returns a table that shows a compaction plan to people: one row for each item, with the bucket, the number and
    the levels of its files, the output level and the bytes to read.
    """
    rows = [
        {
            "item": i.number,
            "bucket": bucket_path(schema, i.partition, i.bucket),
            "files": len(i.inputs),
            "levels": ",".join(str(level) for level in sorted({f.level for f in i.inputs})),
            "output_level": i.output_level,
            "bytes": i.input_bytes,
        }
        for i in plan.items
    ]
    return pa.Table.from_pylist(rows, schema=_SCHEMA)
