"""The options that a table is opened with: those of reading it, and those of writing it through what was opened."""

from collections.abc import Mapping

from bucketline.conf.errors import OptionError
from bucketline.conf.option import check_texts
from bucketline.conf.sink_options import sink_options, split_options
from bucketline.conf.table.own_options import COMPACTION, Compaction
from bucketline.conf.table.read_options import check_open_options


def open_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The read options, then those of the sink. Raises OptionError for others, and for those that only a stream has."""
    check_texts(options, "the options of opening a table")
    writing, reading = split_options(options)
    check_open_options(reading)
    compaction = sink_options(writing).compaction
    if compaction in (Compaction.DEDICATED, Compaction.ASYNC):
        raise OptionError(
            f"'{COMPACTION.key}' = '{compaction.value}' goes by the batches of a stream; a table that is opened writes "
            "with 'inline' or 'none', and `bucketline plan` plans",
            key=COMPACTION.key,
        )
    return reading, writing
