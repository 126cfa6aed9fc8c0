"""Paimon's options for data files: format, compression, names, and which statistics are stored.

The formats are `parquet`, `avro` and `orc`; each has its own codecs. The codecs are those that Paimon's writers accept.
Source: Paimon 2.0 CoreOptions, FileFormat, StatsCollectorFactories.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bucketline.conf.errors import OptionError
from bucketline.conf.option import (
    Option,
    did_you_mean,
    parse_bool,
    parse_enum,
    parse_int,
    parse_map,
    parse_name_part,
    parse_size,
    parse_text,
    whole_number,
)
from bucketline.conf.table.choices import CODECS, FileFormat
from bucketline.conf.table.stats_mode import StatsKind, StatsMode, parse_stats_mode

T = TypeVar("T")

_SAME = {"uncompressed": "none", "zstandard": "zstd"}
_ZSTD = "zstd"
_LEVEL = re.compile(r"\d+")


def _by_level(parse: Callable[[str], T]) -> Callable[[str], Mapping[int, T]]:
    """Returns a parser for options of the form `level:value,level:value`. `parse` is the parser for a value."""

    def read(text: str) -> Mapping[int, T]:
        by_level: dict[int, T] = {}
        for level, value in parse_map(text).items():
            if _LEVEL.fullmatch(level) is None:
                raise OptionError(f"{level!r} is no level; a level is a whole number from 0", value=text)
            try:
                by_level[whole_number(level)] = parse(value)
            except OptionError as e:
                raise OptionError(f"{value!r} {e.message}", value=text) from e
        return by_level

    return read


FILE_FORMAT = Option("file.format", parse_enum(FileFormat), FileFormat.PARQUET, "format of data files")
FILE_FORMAT_PER_LEVEL: Option[Mapping[int, FileFormat]] = Option(
    "file.format.per.level", _by_level(parse_enum(FileFormat)), {}, "level to format"
)
FILE_COMPRESSION = Option("file.compression", parse_text, _ZSTD, "codec of data files")
FILE_COMPRESSION_PER_LEVEL: Option[Mapping[int, str]] = Option(
    "file.compression.per.level", _by_level(parse_text), {}, "level to codec"
)
ZSTD_LEVEL = Option("file.compression.zstd-level", parse_int, 1, "compression level of zstd in data files")
FILE_BLOCK_SIZE = Option("file.block-size", parse_size, None, "size of a row group or stripe in bytes")
ORC_LEGACY_LTZ = Option(
    "orc.timestamp-ltz.legacy.type",
    parse_bool,
    True,
    "ORC timestamps with time zone are stored as the writer's local time",
)
DATA_FILE_PREFIX = Option("data-file.prefix", parse_name_part, "data-", "prefix of data file names")
DATA_FILE_THIN_MODE = Option(
    "data-file.thin-mode",
    parse_bool,
    False,
    "key columns are not stored a second time (as _KEY_ columns) in data files",
)
METADATA_STATS_MODE = Option(
    "metadata.stats-mode",
    parse_stats_mode,
    StatsMode(StatsKind.TRUNCATE, 16),
    "which statistics are stored: none, counts, truncate(n) or full",
)
METADATA_STATS_MODE_PER_LEVEL: Option[Mapping[int, StatsMode]] = Option(
    "metadata.stats-mode.per.level", _by_level(parse_stats_mode), {}, "statistics mode of each level"
)
STATS_DENSE_STORE = Option(
    "metadata.stats-dense-store", parse_bool, True, "columns without statistics take no room in manifests"
)
STATS_KEEP_FIRST_N_COLUMNS = Option(
    "metadata.stats-keep-first-n-columns", parse_int, -1, "number of columns that have statistics; -1 for all"
)

FILE_OPTIONS: Mapping[str, Option[Any]] = {
    option.key: option for option in tuple(globals().values()) if isinstance(option, Option)
}
"""A mapping of all options above by key, in the order of this file."""


def file_format(options: Mapping[str, str], level: int) -> FileFormat:
    """Returns the format of files on a level. Raises OptionError for an unknown format."""
    return FILE_FORMAT_PER_LEVEL.get(options).get(level) or FILE_FORMAT.get(options)


def file_codec(options: Mapping[str, str], level: int, form: FileFormat) -> tuple[str, int | None]:
    """Returns the codec of files on a level, under the name that the library for the format uses, and the compression
    level. The compression level is None for codecs other than zstd, and for ORC, where pyarrow cannot set it.

    Raises OptionError for a codec that the format does not have.
    """
    per_level = FILE_COMPRESSION_PER_LEVEL.get(options).get(level)
    option = FILE_COMPRESSION if per_level is None else FILE_COMPRESSION_PER_LEVEL
    text = FILE_COMPRESSION.get(options) if per_level is None else per_level
    name = _SAME.get(text.lower(), text.lower())
    codec = CODECS[form].get(name)
    if codec is None:
        raise OptionError(
            f"'{option.key}': {form.value} files cannot be written with {text!r}; the codec must be one of "
            f"{', '.join(CODECS[form])}{did_you_mean(name, CODECS[form])}",
            key=option.key,
            value=text,
        )
    # pyarrow cannot set a compression level for ORC.
    return codec, ZSTD_LEVEL.get(options) if name == _ZSTD and form is not FileFormat.ORC else None


def postponed_codec(options: Mapping[str, str]) -> tuple[str, int | None]:
    """Returns the compression codec and the compression level of the Avro files of the postpone bucket. A codec that
    Avro does not have is replaced by zstd.
    """
    name = FILE_COMPRESSION.get(options).lower()
    known = _SAME.get(name, name) in CODECS[FileFormat.AVRO]
    return file_codec(options if known else {ZSTD_LEVEL.key: str(ZSTD_LEVEL.get(options))}, -1, FileFormat.AVRO)


def check_file_options(options: Mapping[str, str]) -> None:
    """Raises OptionError, which names the option, if data files cannot be written with these options: for unknown
    formats and codecs, levels that are no numbers, and statistics modes that Paimon does not have.
    """
    levels = {0, *FILE_FORMAT_PER_LEVEL.get(options), *FILE_COMPRESSION_PER_LEVEL.get(options)}
    METADATA_STATS_MODE_PER_LEVEL.get(options)
    # All levels without an own option have the same settings, so it is enough to check one of them.
    for level in sorted(levels | {max(levels) + 1}):
        file_codec(options, level, file_format(options, level))
