"""Tables and buckets through a FileIO that a test has made, where the library would open one by the table's URI."""

from dataclasses import replace
from functools import cached_property

from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.plans.item_work import BucketJob
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.storage.file_io import FileIO
from bucketline.state.store.table.table import Table, handle_of


def on_io(table: Table, io: FileIO) -> Table:
    """The table, which reads and writes through that FileIO."""
    return Table(replace(handle_of(table), io=io))


def through(io: FileIO, job: BucketJob) -> BucketJob:
    """The job, which reads and writes its bucket through that FileIO."""

    class Watched(BucketAccess):
        @cached_property
        def files(self) -> FileAccess:
            return replace(super().files, io=io)

    access = job.access
    return replace(job, access=Watched(access.uri, access.schema, access.world))
