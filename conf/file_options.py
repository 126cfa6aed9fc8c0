"""Paimon's options for data files: format, compression, names, and the statistics kept of them.

Formats are `parquet`, `avro` and `orc`; each knows its own codecs.
Source: Paimon 2.0 CoreOptions, FileFormat, StatsCollectorFactories; codecs as its writers take them.
"""

import re
from collections.abc import Mapping
from typing import Any

from bucketline.conf.errors import OptionError
from bucketline.conf.option import (
    Option,
    did_you_mean,
    parse_bool,
    parse_choice,
    parse_int,
    parse_map,
    parse_name_part,
    parse_size,
    parse_text,
)

FORMATS = ("parquet", "avro", "orc")
_CODECS: Mapping[str, Mapping[str, str]] = {
    "parquet": {"none": "NONE", "snappy": "SNAPPY", "gzip": "GZIP", "lz4": "LZ4", "zstd": "ZSTD"},
    "avro": {"none": "null", "null": "null", "deflate": "deflate", "snappy": "snappy", "zstd": "zstandard"},
    "orc": {"none": "uncompressed", "zlib": "zlib", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"},
}
"""Format to Paimon's names of codecs, and the names that the library has which writes the format."""
_SAME = {"uncompressed": "none", "zstandard": "zstd"}
_ZSTD = "zstd"
_LEVEL = re.compile(r"\d+")
_STATS_MODE = re.compile(r"none|counts|full|truncate\(\s*0*[1-9]\d*\s*\)", re.IGNORECASE)


def parse_stats_mode(text: str) -> str:
    """The text, if it names how much is kept of columns. Raises OptionError."""
    if _STATS_MODE.fullmatch(text.strip()) is None:
        raise OptionError("must be none, counts, truncate(n) with n > 0, or full", value=text)
    return text.strip()


FILE_FORMAT = Option("file.format", parse_choice(*FORMATS), "parquet", "format of data files")
FILE_FORMAT_PER_LEVEL: Option[dict[str, str]] = Option("file.format.per.level", parse_map, {}, "level to format")
FILE_COMPRESSION = Option("file.compression", parse_text, _ZSTD, "codec of data files")
FILE_COMPRESSION_PER_LEVEL: Option[dict[str, str]] = Option(
    "file.compression.per.level", parse_map, {}, "level to codec"
)
ZSTD_LEVEL = Option("file.compression.zstd-level", parse_int, 1, "zstd level of data files")
FILE_BLOCK_SIZE = Option("file.block-size", parse_size, None, "bytes of a row group or stripe")
ORC_LEGACY_LTZ = Option(
    "orc.timestamp-ltz.legacy.type", parse_bool, True, "instants in ORC as the local time of who writes them"
)
DATA_FILE_PREFIX = Option("data-file.prefix", parse_name_part, "data-", "prefix of data file names")
DATA_FILE_THIN_MODE = Option("data-file.thin-mode", parse_bool, False, "leave the _KEY_ columns out of data files")
METADATA_STATS_MODE = Option(
    "metadata.stats-mode", parse_stats_mode, "truncate(16)", "none, counts, truncate(n) or full"
)
METADATA_STATS_MODE_PER_LEVEL: Option[dict[str, str]] = Option(
    "metadata.stats-mode.per.level", parse_map, {}, "level to stats mode"
)
STATS_DENSE_STORE = Option("metadata.stats-dense-store", parse_bool, True, "store only the stats that exist")
STATS_KEEP_FIRST_N_COLUMNS = Option(
    "metadata.stats-keep-first-n-columns", parse_int, -1, "columns with stats, from the first; -1 for all"
)

FILE_OPTIONS: Mapping[str, Option[Any]] = {
    found.key: found for found in tuple(globals().values()) if isinstance(found, Option)
}
"""Every option above by its key, in the order of this file."""

_COLUMN_STATS_MODE = re.compile(r"fields\..+\.stats-mode")


def file_format(options: Mapping[str, str], level: int) -> str:
    """The format of files on a level. Raises OptionError."""
    found = FILE_FORMAT_PER_LEVEL.get(options).get(str(level))
    return FILE_FORMAT.get(options) if found is None else _format(found)


def file_codec(options: Mapping[str, str], level: int, form: str) -> tuple[str, int | None]:
    """The codec of files on a level, as the library calls it that writes the format, and how hard it is to try.

    Raises OptionError for a codec that the format does not have.
    """
    per_level = FILE_COMPRESSION_PER_LEVEL.get(options).get(str(level))
    option = FILE_COMPRESSION if per_level is None else FILE_COMPRESSION_PER_LEVEL
    text = FILE_COMPRESSION.get(options) if per_level is None else per_level
    name = _SAME.get(text.lower(), text.lower())
    found = _CODECS[form].get(name)
    if found is None:
        raise OptionError(
            f"'{option.key}': {form} files cannot be written with {text!r}; it is one of "
            f"{', '.join(_CODECS[form])}{did_you_mean(name, _CODECS[form])}",
            key=option.key,
            value=text,
        )
    # pyarrow takes no level for ORC.
    return found, ZSTD_LEVEL.get(options) if name == _ZSTD and form != "orc" else None


def postponed_codec(options: Mapping[str, str]) -> tuple[str, int | None]:
    """As `file_codec` for Avro files that nobody chose to have: zstd in place of what Avro does not know."""
    name = FILE_COMPRESSION.get(options).lower()
    known = _SAME.get(name, name) in _CODECS["avro"]
    return file_codec(options if known else {ZSTD_LEVEL.key: str(ZSTD_LEVEL.get(options))}, -1, "avro")


def check_file_options(options: Mapping[str, str]) -> None:
    """Returns when data files can be written as these options say.

    Raises OptionError, naming the key, for formats and codecs that are not written, levels that are no numbers, and
    statistics that Paimon does not know.
    """
    per_level = (FILE_FORMAT_PER_LEVEL, FILE_COMPRESSION_PER_LEVEL, METADATA_STATS_MODE_PER_LEVEL)
    levels = {0}
    for option in per_level:
        for text in option.get(options):
            if _LEVEL.fullmatch(text) is None:
                raise OptionError(f"'{option.key}': {text!r} is no level", key=option.key, value=text)
            levels.add(int(text))
    # One level that no option names stands for all others.
    for level in sorted(levels | {max(levels) + 1}):
        file_codec(options, level, file_format(options, level))
    for text in METADATA_STATS_MODE_PER_LEVEL.get(options).values():
        _named(METADATA_STATS_MODE_PER_LEVEL.key, text)
    for key, text in options.items():
        if _COLUMN_STATS_MODE.fullmatch(key):
            _named(key, text)


def _format(text: str) -> str:
    try:
        return parse_choice(*FORMATS)(text)
    except OptionError as e:
        key = FILE_FORMAT_PER_LEVEL.key
        raise OptionError(f"'{key}': {text!r} {e.message}", key=key, value=text) from e


def _named(key: str, text: str) -> None:
    try:
        parse_stats_mode(text)
    except OptionError as e:
        raise OptionError(f"'{key}': {text!r} {e.message}", key=key, value=text) from e
