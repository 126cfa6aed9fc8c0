"""The words that options can be set to, each list as an enum. The values are Paimon's words."""

from collections.abc import Mapping
from enum import Enum


class BucketFunction(Enum):
    """How the bucket of a row is computed from its bucket key."""

    DEFAULT = "default"
    MOD = "mod"
    HIVE = "hive"


class FileFormat(Enum):
    """The format of data files; the value is also the ending of their names."""

    PARQUET = "parquet"
    AVRO = "avro"
    ORC = "orc"


CODECS: Mapping[FileFormat, Mapping[str, str]] = {
    FileFormat.PARQUET: {"none": "NONE", "snappy": "SNAPPY", "gzip": "GZIP", "lz4": "LZ4", "zstd": "ZSTD"},
    FileFormat.AVRO: {"none": "null", "null": "null", "deflate": "deflate", "snappy": "snappy", "zstd": "zstandard"},
    FileFormat.ORC: {"none": "uncompressed", "zlib": "zlib", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"},
}
"""For each format: Paimon's name of a codec -> its name in the library that writes the format."""


class SortOrder(Enum):
    """Which of two values of the sequence field is the newer one: the larger, or the smaller."""

    ASCENDING = "ascending"
    DESCENDING = "descending"


class LookupCompact(Enum):
    """When a compaction that looks up older values empties level 0: each time, or only now and then."""

    RADICAL = "radical"
    GENTLE = "gentle"


class NullKeys(Enum):
    """What `nested_update` does with rows whose nested key holds a null."""

    MERGE = "merge"
    IGNORE = "ignore"
    ERROR = "error"


class ChangeFiles(Enum):
    """Which files a read of changes reads. AUTO: changelog files if the table has them, else new data files."""

    AUTO = "auto"
    DELTA = "delta"
    CHANGELOG = "changelog"


class ManifestCodec(Enum):
    """The codec of manifests; the values are Paimon's words."""

    ZSTD = "zstd"
    ZSTANDARD = "zstandard"
    DEFLATE = "deflate"
    SNAPPY = "snappy"
    BZIP2 = "bzip2"
    NULL = "null"


class EvolutionPolicy(Enum):
    """What happens when the input has columns that the table lacks, or wider ones."""

    EVOLVE = "evolve"
    IGNORE = "ignore"
    FAIL = "fail"


class PartitionTime(Enum):
    """How the age of a partition is found: from the time in its values, or from its newest file."""

    VALUES = "values-time"
    UPDATE = "update-time"


class DoneAction(Enum):
    """What marks a partition as done."""

    SUCCESS_FILE = "success-file"
    DONE_PARTITION = "done-partition"
    MARK_EVENT = "mark-event"
    HTTP_REPORT = "http-report"
    CUSTOM = "custom"


class DoneTime(Enum):
    """The clock by which a partition counts as idle."""

    PROCESS_TIME = "process-time"
    WATERMARK = "watermark"


class TagCreation(Enum):
    """Who creates tags: nobody; streaming writers, by the time of snapshots or of watermarks; batch writes, one tag a
    day.
    """

    NONE = "none"
    PROCESS_TIME = "process-time"
    WATERMARK = "watermark"
    BATCH = "batch"


class TagPeriod(Enum):
    """Time between two tags that writers create."""

    DAILY = "daily"
    HOURLY = "hourly"
    TWO_HOURS = "two-hours"


class TagFormat(Enum):
    """How the time of a tag that a writer creates is written."""

    WITH_DASHES = "with_dashes"
    WITHOUT_DASHES = "without_dashes"
    WITHOUT_DASHES_AND_SPACES = "without_dashes_and_spaces"


class ExternalPlace(Enum):
    """How the external path of a new file is chosen."""

    NONE = "none"
    SPECIFIC_FS = "specific-fs"
    ROUND_ROBIN = "round-robin"
    ENTROPY_INJECT = "entropy-inject"
    WEIGHTED = "weighted"
