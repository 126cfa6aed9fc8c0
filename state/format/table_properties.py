"""The properties of a table that a metastore shows: the table's options and its keys.

Source: Paimon 2.0 JdbcCatalog.collectTableProperties.
"""

from bucketline.state.format.json_files.schema_json import TableSchema

_BUCKET_KEY = "bucket-key"


def table_properties(schema: TableSchema) -> dict[str, str]:
    """Returns the properties that a metastore shows for a table: the options of the table, and `primary-key`,
    `partition` and `bucket-key` with the names of the columns, joined by commas. A table without primary key or
    partition keys lacks these properties.
    """
    declared = schema.options.get(_BUCKET_KEY, "").split(",") if _BUCKET_KEY in schema.options else []
    partitions = set(schema.partition_keys)
    bucket_keys = declared or [k for k in schema.primary_keys if k not in partitions]
    keys = {"primary-key": schema.primary_keys, "partition": schema.partition_keys, _BUCKET_KEY: bucket_keys}
    return {**schema.options, **{name: ",".join(columns) for name, columns in keys.items() if columns}}
