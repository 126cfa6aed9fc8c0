"""The options with which a table can be opened: options for reading the table, and options for writing it."""

from collections.abc import Mapping

from bucketline.conf.errors import OptionError
from bucketline.conf.option import check_texts
from bucketline.conf.sink_options import sink_options, split_options
from bucketline.conf.table.own_options import COMPACTION, Compaction
from bucketline.conf.table.read_options import check_open_options


def open_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Splits the options with which a table is opened into options for reading and options of the sink, which apply to
    writes.

    Raises OptionError for any other option, and for options that have a meaning only in a stream.
    """
    check_texts(options, "the options of opening a table")
    writing, reading = split_options(options)
    check_open_options(reading)
    compaction = sink_options(writing).compaction
    if compaction in (Compaction.DEDICATED, Compaction.ASYNC):
        raise OptionError(
            f"'{COMPACTION.key}' = '{compaction.value}' needs a stream; set 'inline' or 'none' for a table that is "
            "opened, and use `bucketline plan` to plan compactions",
            key=COMPACTION.key,
        )
    return reading, writing
