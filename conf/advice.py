"""Gives advice about the options of a table when the table is opened: one sentence for each option whose effect differs
from what its name says.
"""

from collections.abc import Mapping

from bucketline.conf.sink_options import LEAST_MEMORY_BYTES, ROUTE_MEMORY
from bucketline.conf.table.compaction_options import COMPACTION_TRIGGER, STOP_TRIGGER
from bucketline.conf.table.memory_options import WRITE_BUFFER_SIZE, why_without_effect
from bucketline.conf.table.promised_options import unkept_by_reads, unkept_by_writes


def advise_read(options: Mapping[str, str]) -> tuple[str, ...]:
    """Returns a sentence for each table option that asks readers for something that bucketline does not do. The
    sentences are sorted by option.
    """
    return tuple(
        f"'{key}' = {options[key]!r} has no effect here: {why}"
        for key in sorted(options)
        if (why := unkept_by_reads(key, options)) is not None
    )


def advise_write(options: Mapping[str, str]) -> tuple[str, ...]:
    """Returns a sentence for each option whose effect on writes differs from what its name says. The sentences are
    sorted by option. `options` are the checked options of table, job and sink together.
    """
    sentences = [
        f"'{key}' = {options[key]!r} has no effect here: {why}"
        for key in sorted(options)
        if (why := why_without_effect(key, options) or unkept_by_writes(key, options)) is not None
    ]
    trigger, stop = COMPACTION_TRIGGER.get(options), STOP_TRIGGER.find(options)
    if stop is not None and stop < trigger:
        sentences.append(
            f"'{STOP_TRIGGER.key}' = '{stop}' is below '{COMPACTION_TRIGGER.key}', and counts as {trigger}"
        )
    buffer = WRITE_BUFFER_SIZE.find(options)
    if buffer is not None and buffer < LEAST_MEMORY_BYTES and not ROUTE_MEMORY.is_set(options):
        sentences.append(
            f"'{WRITE_BUFFER_SIZE.key}' = {options[WRITE_BUFFER_SIZE.key]!r} counts as '1 mb', which is the smallest "
            "value"
        )
    return tuple(sentences)
