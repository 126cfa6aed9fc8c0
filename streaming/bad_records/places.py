"""Makes the place for bad records from the options of a sink."""

from collections.abc import Mapping

from bucketline.conf.sink_options import SinkOptions
from bucketline.streaming.bad_records.folder import Folder
from bucketline.streaming.bad_records.place import BadRecordsPlace
from bucketline.streaming.bad_records.rejects_table import RejectsTable


def place_of(sink: SinkOptions, storage: Mapping[str, str]) -> BadRecordsPlace | None:
    """The place that the options of a sink name; None if they name none. `storage` holds the storage options of the
    table.
    """
    if sink.bad_records_table is not None:
        return RejectsTable(sink.bad_records_table, storage)
    return None if sink.bad_records_path is None else Folder(sink.bad_records_path, storage)
