"""The Avro schemas of manifests and manifest lists, with the record names and the field order of Paimon's Java code.

Source: Paimon 2.0 ManifestEntry, DataFileMeta, ManifestFileMeta, SimpleStats.
"""

from bucketline.state.format.avro.schema import NAMESPACE, AvroRecordFormat, Json, nullable


def _stats(name: str) -> Json:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": "_MIN_VALUES", "type": "bytes"},
            {"name": "_MAX_VALUES", "type": "bytes"},
            nullable("_NULL_COUNTS", {"type": "array", "items": ["null", "long"]}),
        ],
    }


_TEXTS: Json = {"type": "array", "items": "string"}

_DATA_FILE: Json = {
    "type": "record",
    "name": "record__FILE",
    "fields": [
        {"name": "_FILE_NAME", "type": "string"},
        {"name": "_FILE_SIZE", "type": "long"},
        {"name": "_ROW_COUNT", "type": "long"},
        {"name": "_MIN_KEY", "type": "bytes"},
        {"name": "_MAX_KEY", "type": "bytes"},
        {"name": "_KEY_STATS", "type": _stats("record__FILE__KEY_STATS")},
        {"name": "_VALUE_STATS", "type": _stats("record__FILE__VALUE_STATS")},
        {"name": "_MIN_SEQUENCE_NUMBER", "type": "long"},
        {"name": "_MAX_SEQUENCE_NUMBER", "type": "long"},
        {"name": "_SCHEMA_ID", "type": "long"},
        {"name": "_LEVEL", "type": "int"},
        {"name": "_EXTRA_FILES", "type": _TEXTS},
        nullable("_CREATION_TIME", {"type": "long", "logicalType": "timestamp-millis"}),
        nullable("_DELETE_ROW_COUNT", "long"),
        nullable("_EMBEDDED_FILE_INDEX", "bytes"),
        nullable("_FILE_SOURCE", "int"),
        nullable("_VALUE_STATS_COLS", _TEXTS),
        nullable("_EXTERNAL_PATH", "string"),
        nullable("_FIRST_ROW_ID", "long"),
        nullable("_WRITE_COLS", _TEXTS),
    ],
}

ENTRY_FORMAT = AvroRecordFormat(
    {
        "type": "record",
        "name": "record",
        "namespace": NAMESPACE,
        "fields": [
            {"name": "_VERSION", "type": "int"},
            {"name": "_KIND", "type": "int"},
            {"name": "_PARTITION", "type": "bytes"},
            {"name": "_BUCKET", "type": "int"},
            {"name": "_TOTAL_BUCKETS", "type": "int"},
            {"name": "_FILE", "type": _DATA_FILE},
        ],
    }
)

LIST_FORMAT = AvroRecordFormat(
    {
        "type": "record",
        "name": "record",
        "namespace": NAMESPACE,
        "fields": [
            {"name": "_VERSION", "type": "int"},
            {"name": "_FILE_NAME", "type": "string"},
            {"name": "_FILE_SIZE", "type": "long"},
            {"name": "_NUM_ADDED_FILES", "type": "long"},
            {"name": "_NUM_DELETED_FILES", "type": "long"},
            {"name": "_PARTITION_STATS", "type": _stats("record__PARTITION_STATS")},
            {"name": "_SCHEMA_ID", "type": "long"},
            nullable("_MIN_BUCKET", "int"),
            nullable("_MAX_BUCKET", "int"),
            nullable("_MIN_LEVEL", "int"),
            nullable("_MAX_LEVEL", "int"),
            nullable("_MIN_ROW_ID", "long"),
            nullable("_MAX_ROW_ID", "long"),
        ],
    }
)
