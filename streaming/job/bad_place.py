"""Prepares the places (folders, tables, topics) in which a job stores bad records."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bucketline.conf.errors import BucketlineError
from bucketline.conf.job import BadRecords, JobConfig
from bucketline.conf.routes.routed_job import Resolved, RoutedJob
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.table.table import handle_of
from bucketline.state.store.warehouse.catalog import catalog_of
from bucketline.streaming.bad_records.folder import Folder
from bucketline.streaming.bad_records.place import BadRecordsPlace
from bucketline.streaming.bad_records.rejects_table import COLUMNS, COMMENT, KEY, OPTIONS, RejectsTable
from bucketline.streaming.bad_records.topic import Topic, client_options
from bucketline.streaming.bad_records.topic_notes import TopicNotes, notes_beside


def ready_place(config: JobConfig, source_options: Mapping[str, str]) -> BadRecordsPlace | None:
    """Returns the place (folder, table or topic) in which the job stores bad records, ready for use; None if the job
    stores none. If the place is a table that does not exist, the table is created, in the job's catalog if the job has
    one.

    `source_options` are the options that Spark's source gets. Raises OptionError for a table that cannot hold bad
    records, and the errors of `create_table`.
    """
    place = _place(config, source_options)
    if place is not None:
        place.prepare()
    return place


def has_place(config: JobConfig) -> bool:
    """Returns True if the job's place (folder, table or topic) for bad records exists already. (A table for bad records
    is created when the job starts.)
    """
    name = config.bad_records.table
    if name is None:
        return True
    if config.catalog is not None:
        return catalog_of(config.catalog).has_table(name)
    io, root = file_io_for(name, config.storage)
    return Schemas(io, root).latest_id() is not None


def places_of(job: RoutedJob) -> list[JobConfig]:
    """Returns one JobConfig for each place (folder, table or topic) in which a job stores bad records. The place of the
    whole job comes first. If only routes use a place, its JobConfig has the settings of the first of these routes.
    """
    found: dict[BadRecords, JobConfig] = {}
    configs = (job.config_of(Resolved(route.number, route.target)) for route in job.routes)
    for config in (job.common, *configs):
        if config.bad_records.has_place:
            found.setdefault(replace(config.bad_records, max_count=0), config)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class BadRecordPlaces:
    """A function that returns the place (folder, table or topic) for bad records that settings name. It prepares each
    place once. `common` has the settings that hold for all tables.
    """

    common: JobConfig
    source_options: Mapping[str, str]
    _ready: dict[BadRecords, BadRecordsPlace | None] = field(default_factory=dict, compare=False, repr=False)

    def __call__(self, bad_records: BadRecords) -> BadRecordsPlace | None:
        if bad_records not in self._ready:
            named = replace(self.common, bad_records=bad_records)
            self._ready[bad_records] = ready_place(named, self.source_options)
        return self._ready[bad_records]


def _place(config: JobConfig, source_options: Mapping[str, str]) -> BadRecordsPlace | None:
    bad = config.bad_records
    if bad.topic is not None:
        return Topic(bad.topic, client_options(source_options), _notes(config, bad.topic))
    if bad.path is not None:
        return Folder(bad.path, config.storage)
    if bad.table is None:
        return None
    if config.catalog is None:
        return RejectsTable(bad.table, config.storage)
    create = catalog_of(config.catalog).create_table
    table = create(bad.table, COLUMNS, KEY, options=OPTIONS, comment=COMMENT, exist_ok=True)
    return RejectsTable(table.uri, handle_of(table).storage)


def _notes(config: JobConfig, topic: str) -> TopicNotes | None:
    """Returns the notes about a topic for bad records, which say what was sent and what a replay has taken. The notes
    are files next to the checkpoint. Returns None if bucketline cannot reach the storage of the checkpoint (Spark may
    still reach it).
    """
    notes = notes_beside(config.checkpoint, topic, config.storage)
    try:
        file_io_for(notes.path, notes.storage)
    except BucketlineError:
        return None
    return notes
