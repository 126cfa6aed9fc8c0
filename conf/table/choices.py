"""Enums of the values that options can have. The values are spelled as in Paimon."""

from collections.abc import Mapping
from enum import Enum


class BucketFunction(Enum):
    """How the bucket of a row is computed from its bucket key."""

    DEFAULT = "default"
    MOD = "mod"
    HIVE = "hive"


class FileFormat(Enum):
    """The format of data files. The value is also the ending of the files' names."""

    PARQUET = "parquet"
    AVRO = "avro"
    ORC = "orc"


CODECS: Mapping[FileFormat, Mapping[str, str]] = {
    FileFormat.PARQUET: {"none": "NONE", "snappy": "SNAPPY", "gzip": "GZIP", "lz4": "LZ4", "zstd": "ZSTD"},
    FileFormat.AVRO: {"none": "null", "null": "null", "deflate": "deflate", "snappy": "snappy", "zstd": "zstandard"},
    FileFormat.ORC: {"none": "uncompressed", "zlib": "zlib", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"},
}
"""Maps for each file format Paimon's name of a codec to its name in the library that writes the format."""


class SortOrder(Enum):
    """Which of two values of the sequence field is the newer one: the larger, or the smaller."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


class LookupCompact(Enum):
    """Whether each compaction that looks up older values empties level 0, or only some of them do."""

    RADICAL = "radical"
    GENTLE = "gentle"


class NullKeys(Enum):
    """What the aggregate function `nested_update` does with nested rows that have null in their key."""

    MERGE = "merge"
    IGNORE = "ignore"
    ERROR = "error"


class ChangeFiles(Enum):
    """Which files a read of changes uses. AUTO means changelog files if the table has them, and otherwise new data
    files.
    """

    AUTO = "auto"
    DELTA = "delta"
    CHANGELOG = "changelog"


class ManifestCodec(Enum):
    """The compression codec of manifests. The values are spelled as in Paimon."""

    ZSTD = "zstd"
    ZSTANDARD = "zstandard"
    DEFLATE = "deflate"
    SNAPPY = "snappy"
    BZIP2 = "bzip2"
    NULL = "null"
    NONE = "none"
    ZLIB = "zlib"
    GZIP = "gzip"
    LZ4 = "lz4"


class EvolutionPolicy(Enum):
    """What happens if the input has columns that the table lacks, or columns with wider types."""

    EVOLVE = "evolve"
    IGNORE = "ignore"
    FAIL = "fail"


class PartitionTime(Enum):
    """How the age of a partition is determined: by the time in its values, or by its newest file."""

    VALUES = "values-time"
    UPDATE = "update-time"


class DoneAction(Enum):
    """The ways in which a partition is marked as done."""

    SUCCESS_FILE = "success-file"
    DONE_PARTITION = "done-partition"
    MARK_EVENT = "mark-event"
    HTTP_REPORT = "http-report"
    CUSTOM = "custom"


class DoneTime(Enum):
    """The clock that decides whether a partition has been without new rows for long enough."""

    PROCESS_TIME = "process-time"
    WATERMARK = "watermark"


class TagCreation(Enum):
    """Who creates tags automatically: nobody; streaming writers, by the time of snapshots or by watermarks; or batch
    writes, with one tag for each day.
    """

    NONE = "none"
    PROCESS_TIME = "process-time"
    WATERMARK = "watermark"
    BATCH = "batch"


class TagPeriod(Enum):
    """The time between two tags that writers create."""

    DAILY = "daily"
    HOURLY = "hourly"
    TWO_HOURS = "two-hours"


class TagFormat(Enum):
    """How the time is written in the name of a tag that a writer creates."""

    WITH_DASHES = "with_dashes"
    WITHOUT_DASHES = "without_dashes"
    WITHOUT_DASHES_AND_SPACES = "without_dashes_and_spaces"


class ExternalPlace(Enum):
    """How one of several folders outside the table is chosen for a new data file."""

    NONE = "none"
    SPECIFIC_FS = "specific-fs"
    ROUND_ROBIN = "round-robin"
    ENTROPY_INJECT = "entropy-inject"
    WEIGHTED = "weighted"
