"""Refuses to add rows to a table whose keys have CHAR values that are not filled up with spaces. Writers other than
Spark store such values.

This library fills up every CHAR value that it writes. So a new row would not replace the existing row of its key, and
might go to another bucket or partition. A table with keys that are not filled up can be read, and overwritten as a
whole.
"""

from collections.abc import Callable, Collection, Iterator

from bucketline.state.commit.live_files import LiveFiles
from bucketline.state.errors import SchemaMismatchError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.paths import partition_path
from bucketline.state.types.binary_row import decode_row, encode_row
from bucketline.state.types.char_text import is_padded, padded_value
from bucketline.state.types.logical import TypeRoot


def refuse_unpadded_keys(schema: TableSchema, view: LiveFiles) -> None:
    """Raises SchemaMismatchError, which names the column and the partition or file, if the table has a key whose CHAR
    value is not filled up with spaces.

    The function checks the partitions, and the first and last key of each file.
    """
    if not any(f.type.root is TypeRoot.CHAR for f in schema.select(schema.primary_keys)):
        return
    for column, place in _unpadded(schema, view):
        raise SchemaMismatchError(
            f"column {column} of the primary key is {schema.field(column).type}, but {place} holds values that are not "
            "padded with blanks, as writers other than Spark store them: a new row would not replace the row of its "
            "key. Write the table anew first: rows = table.to_arrow(); table.truncate(); table.write(rows)",
            column=column,
        )


def same_partitions(schema: TableSchema, partitions: Collection[bytes]) -> Callable[[bytes], bool]:
    """Returns a function that returns True for a partition that is in `partitions`. In `partitions`, CHAR values are
    filled up with spaces; in the partition to test they need not be.
    """
    types = [f.type for f in schema.select(schema.partition_keys)]
    if not any(t.root is TypeRoot.CHAR for t in types):
        return partitions.__contains__

    def test(partition: bytes) -> bool:
        values = decode_row(partition, types)
        return encode_row([padded_value(v, t) for v, t in zip(values, types, strict=True)], types) in partitions

    return test


def _unpadded(schema: TableSchema, view: LiveFiles) -> Iterator[tuple[str, str]]:
    """Yields each key column with a CHAR value that is not filled up with spaces, and the partition or file that has
    the value.
    """
    partition_fields = schema.select(schema.partition_keys)
    keys = schema.select(schema.trimmed_primary_key)
    types = [f.type for f in keys]
    for partition in {partition for partition, _ in view.buckets()}:
        values = decode_row(partition, [f.type for f in partition_fields])
        for field, value in zip(partition_fields, values, strict=True):
            if not is_padded(value, field.type):
                yield field.name, f"partition {partition_path(schema, partition).rstrip('/')}"
    for bucket_id in view.buckets():
        for file in view.files(bucket_id):
            if bucket_id[1] < 0:
                continue
            for row in (file.min_key, file.max_key):
                for field, value in zip(keys, decode_row(row, types), strict=True):
                    if not is_padded(value, field.type):
                        yield field.name, f"file {file.file_name}"
