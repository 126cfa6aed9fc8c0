"""DataFileMeta: the metadata of one data file in a manifest.

Source: Paimon 2.0 DataFileMeta, FileEntry.Identifier, SimpleStats.
"""

from dataclasses import dataclass, replace
from enum import IntEnum

EMPTY_ROW = bytes(12)
"""The bytes of a BinaryRow without fields: four bytes for the number of fields, and eight for the row's header."""


class FileSource(IntEnum):
    APPEND = 0
    COMPACT = 1


@dataclass(frozen=True, slots=True)
class SimpleStats:
    """Statistics of some columns. The smallest values of all columns form one BinaryRow, and the largest values form
    another; before the bytes of each row is its number of fields, in 4 bytes. `null_counts` has the number of nulls for
    each column; None if the number is unknown.
    """

    min_values: bytes = EMPTY_ROW
    max_values: bytes = EMPTY_ROW
    null_counts: tuple[int | None, ...] | None = ()


EMPTY_STATS = SimpleStats()


@dataclass(frozen=True, slots=True)
class DataFileMeta:
    """The metadata of one data file. Sizes are in bytes; keys are BinaryRows of the trimmed primary key.

    `creation_time_ms` is the local time of the writer, converted to milliseconds as if it were UTC, as Paimon's Java
    writers do.

    The members are the same as for a data file in Paimon's manifests.
    """

    file_name: str
    file_size: int
    row_count: int
    min_key: bytes
    max_key: bytes
    key_stats: SimpleStats
    value_stats: SimpleStats
    min_sequence_number: int
    max_sequence_number: int
    schema_id: int
    level: int
    extra_files: tuple[str, ...] = ()
    creation_time_ms: int | None = None
    delete_row_count: int | None = None
    embedded_index: bytes | None = None
    file_source: FileSource | None = None
    value_stats_cols: tuple[str, ...] | None = None
    external_path: str | None = None
    first_row_id: int | None = None
    write_cols: tuple[str, ...] | None = None

    def upgraded(self, level: int) -> "DataFileMeta":
        """Returns the metadata of the same file on a higher level of its bucket. Nothing else changes, and the file is
        not rewritten.
        """
        assert level > self.level, f"{self.file_name}: cannot be upgraded from level {self.level} to {level}"
        return replace(self, level=level)

    @property
    def may_hold_deletes(self) -> bool:
        return self.delete_row_count is None or self.delete_row_count > 0
