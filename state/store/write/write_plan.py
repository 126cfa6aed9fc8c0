"""From a table and a job's options to what tasks need for writing it: one frozen value, made on the driver.

Everything that cannot be honoured is refused here, before a row is read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bucketline.conf.errors import OptionError
from bucketline.conf.sink_options import COMPACTION, Compaction, SinkOptions, sink_options, split_options
from bucketline.conf.storage_options import refuse_storage_keys
from bucketline.conf.table.choices import ChangelogProducer
from bucketline.conf.table.compaction_options import FORCE_COMPACT, WRITE_ONLY
from bucketline.conf.table.fixed_options import check_job_options
from bucketline.conf.table.table_options import (
    check_write_options,
)
from bucketline.state.bucket.allocation import AllocationRule, assigner_count
from bucketline.state.bucket.defaults import default_scalar
from bucketline.state.bucket.mode import BucketMode, bucket_mode, total_buckets
from bucketline.state.determinism import SYSTEM_CLOCK, SYSTEM_IDS, Clock, IdSource
from bucketline.state.format.entries import IndexManifestEntry, Snapshot
from bucketline.state.format.paths import POSTPONE_BUCKET
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.lsm.merge.fold_choice import sealing_fold
from bucketline.state.lsm.tree.compact_options import CompactOptions
from bucketline.state.store.catalog.live_files import TableView
from bucketline.state.store.compact.bucket_access import BucketAccess
from bucketline.state.store.datafile.file_settings import check_files
from bucketline.state.store.index.hash_index_store import rows_by_bucket
from bucketline.state.store.write.bucket_writer import BucketWrite, CompactTrigger
from bucketline.state.store.write.cross_write import CrossWrite
from bucketline.state.store.write.dynamic_write import BYTES_PER_KEY, AssignWrite
from bucketline.state.store.write.grouping import FixedBuckets, Grouping, HashShares, KeyShares, KnownBuckets, OneBucket
from bucketline.state.store.write.new_keys import DynamicWrite
from bucketline.state.store.write.sealed_runs import SealPlan

HashEntries = Mapping[bytes, tuple[IndexManifestEntry, ...]]
"""The HASH files of each partition that has any."""


@dataclass(frozen=True, slots=True)
class WritePlan:
    """How one job writes one table. `schema` carries the options in force: the table's, then the job's.

    `touched` are the partitions that the last batch wrote, a guess at those of the next; None where nothing is known.
    """

    uri: str
    schema: TableSchema
    sink: SinkOptions
    mode: BucketMode
    total_buckets: int
    touched: frozenset[bytes] | None = None

    @property
    def _why_not_compacting(self) -> str | None:
        """Why this job leaves the buckets it writes as they are; None where it compacts them."""
        if self.mode is BucketMode.POSTPONE:
            return "rows of a postpone table are compacted when they leave the postpone bucket"
        if self.mode is BucketMode.UNAWARE:
            return "an append table with no buckets has nobody who owns its files while others write"
        if self.schema.settings.compaction.write_only:
            return f"'{WRITE_ONLY.key}' = 'true' leaves compaction to others"
        if self.sink.compaction is not Compaction.INLINE:
            return f"'{COMPACTION.key}' = '{self.sink.compaction.value}' leaves compaction to others"
        return None

    @property
    def compacts(self) -> bool:
        """Whether this job compacts the buckets it writes."""
        return self._why_not_compacting is None

    @property
    def compact_options(self) -> CompactOptions:
        return CompactOptions.of(self.schema.settings)

    def trigger(self, commit_number: int) -> CompactTrigger:
        """What is compacted with commit number n, counted from 0 and kept by the source: restarts do not shift it.

        Source: Paimon 2.0 DataWrite: full compaction when (n + 1) is a multiple of `full-compaction.delta-commits`;
        FlinkSink: each commit where the changelog comes from full compactions and nothing else is said.
        Raises OptionError where commits are asked to wait for compactions that this job does not do.
        """
        why = self._why_not_compacting
        if why is not None and self.schema.settings.compaction.force_compact:
            raise OptionError(
                f"'{FORCE_COMPACT.key}' = 'true' asks each commit to wait for its compaction, but {why}; remove one of "
                f"the two, or set '{FORCE_COMPACT.key}' = 'false' for this job",
                key=FORCE_COMPACT.key,
            )
        if why is not None:
            return CompactTrigger.NONE
        every = self.schema.settings.compaction.full_every_commits
        if every is None and self.schema.settings.changelog.producer is ChangelogProducer.FULL_COMPACTION:
            every = 1
        return CompactTrigger.FULL if every and (commit_number + 1) % every == 0 else CompactTrigger.MINOR

    @property
    def allocation_rule(self) -> AllocationRule:
        """How dynamic buckets are filled."""
        bucket = self.schema.settings.bucket
        return AllocationRule(bucket.target_rows, bucket.limit)

    def dynamic_write(self, entries: HashEntries, *, shards: int, expected_rows: int) -> DynamicWrite | None:
        """How new keys get buckets in a batch that brings about `expected_rows` to each partition it touches; None for
        other modes than dynamic."""
        if self.mode is not BucketMode.DYNAMIC:
            return None
        rows = {p: rows_by_bucket(found) for p, found in entries.items()}
        initial = self.schema.settings.bucket.initial
        assigners = {
            p: assigner_count(
                sum(buckets.values()),
                parallelism=shards,
                rule=self.allocation_rule,
                initial_buckets=initial,
                expected_rows=expected_rows,
            )
            for p, buckets in rows.items()
        }
        first = assigner_count(
            0, parallelism=shards, rule=self.allocation_rule, initial_buckets=initial, expected_rows=expected_rows
        )
        return DynamicWrite(self.allocation_rule, rows, assigners, first)

    def index_shares(self, entries: HashEntries) -> int:
        """Into how many shares the HASH index has to fall for each to fit into `key-index-memory`: that of the largest
        partition, and that of all which a batch may touch. One that touches more is slower, as it reads them again for
        each flush of a map task.
        """
        keys = {p: sum(e.row_count for e in found) for p, found in entries.items()}
        together = sum(count for p, count in keys.items() if self.touched is None or p in self.touched)
        size = BYTES_PER_KEY * max(together, max(keys.values(), default=0))
        return max(1, -(-size // self.sink.key_index_memory_bytes))

    def assign_write(self, entries: HashEntries, dynamic: DynamicWrite | None) -> AssignWrite | None:
        """How rows get their buckets by shares of the index, where it is larger than `key-index-memory`."""
        if dynamic is None or self.index_shares(entries) == 1:
            return None
        return AssignWrite(self.uri, self.schema, entries, dynamic, self.sink.key_index_memory_bytes)

    def bucket_write(
        self,
        trigger: CompactTrigger,
        dynamic: DynamicWrite | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        ids: IdSource = SYSTEM_IDS,
    ) -> BucketWrite:
        """How buckets are written when `trigger` decides about compaction."""
        return BucketWrite(
            access=BucketAccess(self.uri, self.schema, clock, ids),
            total_buckets=self.total_buckets,
            trigger=trigger,
            merge_memory_bytes=self.sink.merge_memory_bytes,
            compact_memory_bytes=self.sink.compact_memory_bytes,
            dynamic=dynamic,
            index_cache_bytes=self.sink.key_index_memory_bytes,
            local_directory=self.sink.local_directory,
        )

    def cross_write(
        self, snapshot: Snapshot | None, *, shares: int, backup: str | None = None, back_up_now: bool = False
    ) -> CrossWrite:
        """How rows of a cross-partition table are placed on a snapshot by so many shares of the keys."""
        return CrossWrite(
            uri=self.uri,
            schema=self.schema,
            snapshot=snapshot,
            shares=shares,
            rule=self.allocation_rule,
            memory_bytes=self.sink.key_index_memory_bytes,
            local_directory=self.sink.local_directory,
            backup=backup,
            back_up_now=back_up_now,
            budget_bytes=self.sink.route_memory_bytes,
            run_bytes=self.sink.run_bytes,
        )

    def postponing(self, write: BucketWrite, user: str, view: TableView) -> BucketWrite:
        """The same, with rows going to the postpone bucket of a postpone table.

        Raises OptionError for a writer whose name would hide the number of its writer in the names of its files.
        """
        if self.mode is not BucketMode.POSTPONE:
            return write
        if "-s-" in user:
            raise OptionError(
                f"the writer {user!r} cannot write a postpone table: its files are named after it, and '-s-' ends the "
                "name there; choose another sink_id",
                user=user,
            )
        waiting = [b for b in view.buckets() if b[1] == POSTPONE_BUCKET]
        since = {b[0]: max(f.creation_time_ms or 0 for f in view.files(b)) for b in waiting}
        return replace(write, postponed_user=user, postponed_since=since)

    def with_totals(self, write: BucketWrite, totals: Mapping[bytes, int]) -> BucketWrite:
        """The same, with the bucket counts of partitions."""
        return replace(write, totals=dict(totals))

    def rebucket_plan(self, totals: Mapping[bytes, int]) -> SealPlan:
        """How rows are moved to real buckets, whose counts are given by partition."""
        grouping = FixedBuckets(max(1, self.total_buckets), self.schema.settings.bucket.function, dict(totals))
        return replace(self._sorted_plan(grouping), total_buckets=self.total_buckets)

    def seal_plan(
        self,
        view: TableView,
        entries: HashEntries | None = None,
        dynamic: DynamicWrite | None = None,
        *,
        shares: int = 1,
    ) -> SealPlan:
        """How map tasks group and order rows; `view` tells which partitions have another bucket count.

        `shares` is how many tasks share the keys of a postpone or cross-partition table.
        """
        plan = self._sorted_plan(self._grouping(entries or {}, dynamic, shares))
        if self.mode is BucketMode.FIXED:
            return replace(plan, other_totals=view.other_totals(self.total_buckets))
        if self.mode in (BucketMode.POSTPONE, BucketMode.CROSS_PARTITION):
            return replace(plan, keep_order=True, fold=None)
        return plan

    def _sorted_plan(self, grouping: Grouping) -> SealPlan:
        merge = self.schema.settings.merge
        return SealPlan(
            schema=self.schema,
            grouping=grouping,
            fold=sealing_fold(self.schema),
            sequence_fields=merge.sequence_fields,
            sequence_descending=merge.newest_is_smallest,
            total_buckets=self.total_buckets,
            budget_bytes=self.sink.route_memory_bytes,
            run_bytes=self.sink.run_bytes,
        )

    def _grouping(self, entries: HashEntries, dynamic: DynamicWrite | None, shares: int) -> Grouping:
        if self.mode is BucketMode.UNAWARE:
            return OneBucket()
        if self.mode is BucketMode.POSTPONE:
            return KeyShares(shares, self.schema.trimmed_primary_key)
        if self.mode is BucketMode.CROSS_PARTITION:
            return KeyShares(shares, self.schema.primary_keys, across_partitions=True)
        if dynamic is None:
            return FixedBuckets(self.total_buckets, self.schema.settings.bucket.function)
        if self.index_shares(entries) > 1:
            return HashShares(dynamic.assigners, dynamic.first_assigners)
        return KnownBuckets(
            self.uri, entries, dynamic.assigners, dynamic.first_assigners, self.sink.key_index_memory_bytes
        )


def plan_write(uri: str, schema: TableSchema, job_options: Mapping[str, str]) -> WritePlan:
    """The plan for a table and a job's options.

    Raises OptionError for options that are unknown, do not fit or are not honoured, UnsupportedTableError for a table
    that this release cannot write. Nothing has been written then.
    """
    refuse_storage_keys(job_options, "the job's options")
    ours, paimons = split_options(job_options)
    check_job_options(paimons, schema.options)
    effective = replace(schema, options={**schema.options, **paimons})
    check_write_options(effective.options, effective.primary_keys, effective.partition_keys)
    check_files(effective)
    mode = bucket_mode(effective)
    for field in schema.fields:
        if field.default_value is not None:
            default_scalar(field)
    return WritePlan(uri, effective, sink_options({**effective.options, **ours}), mode, total_buckets(effective))
