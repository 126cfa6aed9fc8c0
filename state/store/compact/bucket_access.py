"""Gives a task access to the buckets of one table. A `BucketAccess` can be sent to executors, because it holds only
plain values; the executors open the files.

Source: Paimon 2.0 KeyValueFileReaderFactory, KeyValueFileWriterFactory (the pairing of readers and writers).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from bucketline.state.commit.live_files import BucketId
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.format.data_file import DataFileMeta, FileSource
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.row_age import RowAge, row_age
from bucketline.state.format.row_ranges import kept_schema
from bucketline.state.lsm.tree.compact_options import CompactOptions
from bucketline.state.lsm.tree.levels import Levels
from bucketline.state.lsm.tree.run import ToComparable
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.catalog.table_handle import branch_path
from bucketline.state.store.datafile.file_settings import Postponed, file_settings
from bucketline.state.store.datafile.formats import FileSettings
from bucketline.state.store.datafile.rolling_writer import RollingWriter
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.prune import BucketFiles
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.store.storage.parallel import all_at_once
from bucketline.state.types.order import key_order


@dataclass(frozen=True)
class BucketAccess:
    """Reads and writes files of one table's buckets. The options in `schema` are those of the table and of the job.

    Only `uri`, `schema` and `world` are pickled; files are opened on the executor.
    """

    uri: str
    schema: TableSchema
    world: World = SYSTEM_WORLD

    @cached_property
    def files(self) -> FileAccess:
        io, path = file_io_for(self.uri, self.schema.storage, self.world)
        stored = Schemas(io, branch_path(path, self.schema.settings.reading)).read_under(self.schema)

        @cache
        def schema_of(schema_id: int) -> TableSchema:
            return self.schema if schema_id == self.schema.id else stored(schema_id)

        return FileAccess(io, path, self.schema, schema_of)

    @cached_property
    def _settings(self) -> dict[tuple[int, FileSource], FileSettings]:
        """Returns the cache of file settings (format, codec and others) by level and by the source of files: writes or
        compactions. The settings are the same for all buckets.
        """
        return {}

    @cached_property
    def compact_options(self) -> CompactOptions:
        """Returns the options that say which files of a table with a primary key are compacted, and when. Raises the
        errors of `CompactOptions.of`.
        """
        return CompactOptions.of(self.schema.settings)

    @cached_property
    def key_order(self) -> ToComparable:
        return key_order([f.type for f in self.schema.select(self.schema.trimmed_primary_key)])

    @property
    def keeping(self) -> "BucketAccess":
        """Returns an access for jobs that write existing rows into new files. In tables with row tracking, the writers
        of this access store row ids and versions in columns, so that the rows keep their ids and versions.
        """
        schema = kept_schema(self.schema)
        return self if schema is self.schema else replace(self, schema=schema)

    def age(self) -> RowAge | None:
        """Returns a test for rows that have expired by now; None for tables whose rows do not expire."""
        if self.schema.settings.expiry.rows_ms is None:
            return None
        return row_age(self.schema, self.world.clock.now_ms())

    def expired(self, files: Iterable[DataFileMeta]) -> frozenset[str]:
        """Returns the names of the files that hold an expired row, according to the files' statistics."""
        age = self.age()
        if age is None:
            return frozenset()
        return frozenset(f.file_name for f in files if age.has_expired(f, self.files.schema_of))

    def levels(self, files: Sequence[DataFileMeta]) -> Levels:
        """Returns the live files of a bucket, ordered by level."""
        return Levels.from_files(files, self.compact_options.num_levels, self.key_order)

    def writer(
        self,
        bucket_id: BucketId,
        *,
        level: int,
        source: FileSource,
        first_sequence_number: int = 0,
        postponed: Postponed | None = None,
    ) -> RollingWriter:
        """Returns a writer for new files in a bucket."""
        settings = self._settings.get((level, source)) if postponed is None else None
        if settings is None:
            settings = file_settings(self.schema, level=level, source=source, postponed=postponed)
            if postponed is None:
                self._settings[level, source] = settings
        return RollingWriter(
            self.files.io,
            self.files.table_path,
            self.schema,
            world=self.world,
            place=bucket_id,
            level=level,
            source=source,
            first_sequence_number=first_sequence_number,
            postponed=postponed,
            settings=settings,
        )

    def changelog_writer(self, bucket_id: BucketId, *, level: int) -> RollingWriter:
        """Returns a writer for changelog files in a bucket. Keys must ascend, but a key may come more than once."""
        return RollingWriter(
            self.files.io,
            self.files.table_path,
            replace(self.schema, options=dict(self.schema.settings.changelog.file_options)),
            world=self.world,
            place=bucket_id,
            level=level,
            source=FileSource.APPEND,
        )

    def delete_own(self, files: Sequence[DataFileMeta], bucket_id: BucketId) -> None:
        """Removes files that the caller has just written, and that no snapshot names."""
        bucket = BucketFiles(*bucket_id, total_buckets=0, files=())
        removals = []
        for file in files:
            io, path = self.files.place(bucket, file)
            folder = path.rpartition("/")[0]
            removals += [partial(io.delete, path), *(partial(io.delete, f"{folder}/{n}") for n in file.extra_files)]
        all_at_once(self.files.io, removals)

    @contextmanager
    def removed_on_error(self, bucket_id: BucketId) -> Iterator[list[DataFileMeta]]:
        """Gives the `with` block a list, to which the block adds the files that it makes in a bucket. If the block
        raises an error, these files are removed.
        """
        made: list[DataFileMeta] = []
        try:
            yield made
        except BaseException:
            self.delete_own(made, bucket_id)
            raise

    def __getstate__(self) -> dict[str, object]:
        return {"uri": self.uri, "schema": self.schema, "world": self.world}
