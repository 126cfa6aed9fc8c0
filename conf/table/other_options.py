"""Paimon's table options that have no effect in bucketline: harmless options, which are ignored, and restricted
options, each with the reason.

Harmless options tune an engine, a cache or a reader, or belong to a mode that is refused because of another option. A
table with such options is written correctly. Options that limit memory are in `memory_options`. Restricted options
change what a writer must do, so only the listed values are accepted.
Source: Paimon 2.0 CoreOptions, FlinkConnectorOptions, SparkConnectorOptions; read 2026-11.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bucketline.conf.table.read_options import (
    BRANCH,
    DATA_EVOLUTION_ENABLED,
    DATA_FILE_DIRECTORY,
    INDEX_IN_DATA_DIRECTORY,
    READ_OPTIONS,
    ROW_TRACKING_ENABLED,
)

_ENGINE = "tunes how an engine buffers, sorts or writes; the files are equally valid without it"
_LOOKUP = "tunes lookup caches; there are none here"
_READER = "chooses or tunes what a reader sees, never what is written"
_FLINK = "tunes a Flink or Spark job of Paimon's own"
_OTHER_MODE = "matters only with a bucket mode, merge engine or changelog producer that is refused by its own option"
_ROW_IDS = "the ids of the new rows of a partition always have no gap in one commit"
_GIVEN_UP = "an option of an older release of Paimon; newer releases of Paimon do not read it"
_METADATA = "an optional service, or smaller metadata; metadata is complete without it"

CATALOG_OF_TABLE = "bucketline.catalog"
"""bucketline's own option: the kind of catalog to which a table belongs, if this catalog decides which snapshot is the
newest.
"""

_HARMLESS_KEYS: Mapping[str, str] = {
    _ENGINE: """
        async-file-write sort-engine write.sequence-number-init-mode
        file.suffix.include.compression file-operation.thread-num delete-file.thread-num overwrite-upgrade
        bucket-append-ordered auto-create path
        compaction.max.file-num compaction.file-num-limit compaction.delete-ratio-threshold
        compaction.skip-expired-partitions sort-compaction.range-strategy sort-compaction.local-sample.magnification
        zorder.var-length-contribution snapshot.expire.execution-mode snapshot.clean-empty-directories
        snapshot.expire.clean-empty-directories clustering.columns clustering.strategy sink.clustering.by-columns
        sink.clustering.strategy clustering.history-partition.idle-to-full-sort clustering.history-partition.limit
        clustering.incremental.mode clustering.incremental.optimize-write orc.write.batch-size
        disable-explicit-type-casting
        format-table.commit-hive-sync-url format-table.file.compression format-table.implementation
        format-table.partition-path-only-value format-table.scan.list-parallelism local-kv-db.block-size
        owner provider comment transient_lastDdlTime is_managed_location external
    """,
    _LOOKUP: """
        lookup.async
        lookup.cache-file-retention lookup.cache-rows
        lookup.cache-spill-compression lookup.cache.bloom.filter.enabled lookup.cache.bloom.filter.fpp lookup.cache
        lookup.cache.high-priority-pool-ratio lookup.continuous.discovery-interval lookup.hash-load-factor
        lookup.remote-file.enabled lookup.blob-as-descriptor
        lookup.remote-file.level-threshold lookup.bootstrap-parallelism lookup.async-thread-number
        lookup.dynamic-partition.refresh-interval lookup.refresh.async lookup.dynamic-partition.refresh.async
        lookup.refresh.async.pending-snapshot-count lookup.refresh.time-periods-blacklist
        lookup.refresh.full-load-threshold
    """,
    _READER: """
        scan.mode scan.timestamp scan.watermark
        scan.bounded scan.bounded.watermark scan.bucket scan.creation-time-millis scan.file-creation-time-millis
        scan.fallback-branch.read-fail-fast scan.fallback-delta-branch
        scan.fallback-snapshot-branch scan.ignore-corrupt-files scan.ignore-lost-files scan.manifest.parallelism
        scan.max-splits-per-task scan.plan-auto-tag-for-read.time-retained scan.plan-sort-partition scan.partitions
        scan.parallelism scan.infer-parallelism scan.infer-parallelism.max scan.split-enumerator.batch-size
        scan.split-enumerator.mode scan.max-snapshot.count scan.remove-normalize scan.dedicated-split-generation
        scan.watermark.emit.strategy scan.watermark.alignment.group scan.watermark.idle-timeout
        scan.watermark.alignment.max-drift scan.watermark.alignment.update-interval log.scan log.scan.timestamp-millis
        batch-scan-mode stream-scan-mode streaming-read-mode streaming-read-append-overwrite
        streaming.read.snapshot.delay incremental-between
        incremental-between-tag-to-snapshot incremental-between-timestamp incremental-to-auto-tag
        consumer-id consumer.ignore-progress consumer.mode
        continuous.discovery-interval source.split.target-size source.split.open-file-cost read.batch-size
        source.split.target-size-with-column-pruning file-reader-async-threshold
        read.changelog read.allow.fullScan read.stream.maxFilesPerTrigger read.stream.maxBytesPerTrigger
        read.stream.maxRowsPerTrigger read.stream.minRowsPerTrigger read.stream.maxTriggerDelayMs
        read.shuffle-bucket-with-partition table-read.sequence-number.enabled key-value.sequence_number.enabled
        blob-as-descriptor blob.split-by-file-size
        snapshot.watermark-idle-timeout source.checkpoint-align.enabled source.checkpoint-align.timeout
        source.operator-uid.suffix global-index.search-mode scalar-index.search-mode vector-index.search-mode
        full-text-index.search-mode vector-search.distribute.enabled vector-search.lateral-join.batch-size
        vector-search.lateral-join.parallelism blob-view.resolve.enabled global-index.enabled
        data-evolution.row-sidecar.max-selected-rows data-evolution.row-sidecar.max-selection-ratio
        variant.shreddingSchema variant.inferShreddingSchema
    """,
    _FLINK: """
        sink.parallelism sink.use-managed-memory-allocator
        sink.managed.writer-buffer-memory sink.cross-partition.managed-memory sink.savepoint.auto-tag sink.writer-cpu
        sink.writer-memory sink.committer-cpu sink.committer-memory sink.committer-operator-chaining
        sink.operator-uid.suffix sink.coordinator-commit.enabled sink.writer-coordinator.enabled
        sink.writer-coordinator.cache-memory sink.writer-coordinator.page-size
        sink.writer-coordinator.cache-expire-after-access sink.writer-coordinator.cache-soft-values
        sink.writer-coordinator.prefetch-manifests sink.key-only-deletes.enabled sink.writer-refresh-detectors
        sink.clustering.sort-in-cluster
        sink.clustering.sample-factor partition.sink-strategy precommit-compact end-input.watermark
        changelog.precommit-compact.thread-num changelog.precommit-compact.buffer-size
        changelog-producer.compaction-interval unaware-bucket.compaction.parallelism unaware-bucket.no-shuffle
        compaction.bucket-distribution-strategy filesystem.job-level-settings.enabled commit.custom-listeners
        requiredSparkConfsCheck.enabled legacy-timestamp-mapping.enabled write.merge-schema
        write.merge-schema.type-widening write.merge-schema.explicit-cast write.use-v2-write
        write.hive-style-dynamic-partition.enabled
    """,
    _OTHER_MODE: """
        postpone.batch-write-fixed-bucket.rescale-load-factor
        visibility-callback.timeout visibility-callback.check-interval
        chain-table.chain-partition-keys chain-table.split.key-range-enabled chain-table.streaming.merge-snapshot
        partition.mark-done-action.custom.class partition.mark-done.recover-from-state
        partition.idle-time-to-report-statistic
        delete.force-produce-changelog vector.file.format vector.target-file-size blob.target-file-size
        blob.copy-buffer-size blob-compaction.enabled lock.type lock-check-max-sleep lock-acquire-timeout
        write-null-on-missing-file blob-write-null-on-missing-file blob-write-null-on-fetch-failure
        blob-descriptor.source-table data-evolution.compaction.rewrite-row-ids data-evolution.merge-into.file-pruning
        data-evolution.merge-into.source-persist write.data-evolution.update-conflict-retry.max-attempts
        write.data-evolution.update-conflict-retry.wait-ms data-evolution.reassign.skip-contiguous-row-count
        data-evolution.row-id-conflict-rewrite.max-size data-evolution.row-sidecar.enabled
        global-index.row-count-per-shard global-index.build.max-parallelism
        global-index.build.max-shard global-index.thread-num format-table.repair.collect-statistics
        format-table.statistics.parallelism metastore.tag-to-partition.preview
    """,
    _GIVEN_UP: """
        changelog.precommit-compact compaction.early-max.file-num compaction.max-sorted-run-num log.changelog-mode
        log.consistency log.format log.ignore-delete log.key.format log.retention log.scan.remove-normalize log.system
        log.system.partitions log.system.replication lookup.dynamic-partition lookup.local-file-type
        partition.mark-done-action.http.timeout record-level.time-field-type scan.push-down sequence.auto-padding
        streaming-compact streaming-read-atomic streaming-read.shuffle-bucket-with-partition write-manifest-cache
        write-mode
    """,
    _ROW_IDS: "row-tracking.partition-group-on-commit",
    _METADATA: """
        manifest-sort.enabled manifest-sort.partition-field manifest-sort.max-rewrite-size
        manifest.delete-file-drop-stats manifest.merge-optimize.enabled
        commit.discard-duplicate-files visibility-callback.enabled
    """,
}

_WRITTEN_ABOUT = (BRANCH, DATA_FILE_DIRECTORY, INDEX_IN_DATA_DIRECTORY, ROW_TRACKING_ENABLED, DATA_EVOLUTION_ENABLED)
"""Options for readers that also change what a writer must do."""

_WITHOUT_EFFECT = {key: why for why, keys in _HARMLESS_KEYS.items() for key in keys.split()}

HARMLESS: Mapping[str, str] = {
    **_WITHOUT_EFFECT,
    CATALOG_OF_TABLE: _ENGINE,
    **{option.key: _READER for option in READ_OPTIONS if option not in _WRITTEN_ABOUT},
}
"""The harmless options, each with the reason why it may be ignored."""


def has_no_effect(key: str) -> str | None:
    """Returns why an option of Paimon has no effect in bucketline; None if the option has or may have an effect."""
    return _WITHOUT_EFFECT.get(key)


HARMLESS_PREFIXES: Mapping[str, str] = {
    "fields.": "read by the merge engine, which checks them with the columns",
    "file-index.": "builds optional indexes of data files; readers do not need them",
    "parquet.": _ENGINE,
    "orc.": _ENGINE,
    "avro.": _ENGINE,
    "commit.callback.": "belongs to a callback, and the option that names a callback is refused",
    "tag.callback.": "belongs to a callback, and the option that names a callback is refused",
    "metadata.iceberg.": "belongs to metadata of Iceberg, and the option that asks for this metadata is refused",
    "materialized-table.": "kept for Flink's refresh of a materialized table",
    "variant.shredding.": _ENGINE,
    "fs.": "read by the file system",
    "s3.": "read by the file system",
    "s3a.": "read by the file system",
    "oss.": "read by the file system",
    "hadoop.": "read by the file system",
}
"""Prefixes of harmless options, each with the reason why such options may be ignored."""


@dataclass(frozen=True, slots=True)
class Restriction:
    """The accepted values of an option, in lower case, and why other values are refused. `reason` is a clause that
    follows the colon in the error message.
    """

    accepted: tuple[str, ...]
    reason: str
    remedy: str


def _only(accepted: str, reason: str, remedy: str | None = None) -> Restriction:
    return Restriction((accepted,), reason, remedy or f"set it to '{accepted}'")


def _never(reason: str, remedy: str = "remove it") -> Restriction:
    return Restriction((), reason, remedy)


_NOT_YET = "bucketline does not write it"
_LOST = "bucketline does not do what it asks for"
_INDEX = "bucketline does not maintain such an index, and readers that trust the index would miss rows"
_ICEBERG = "readers of Iceberg would not see the new rows, because bucketline writes no metadata of Iceberg"
_APPEND_FEATURE = "it needs information in every file that bucketline does not write"

RESTRICTED: Mapping[str, Restriction] = {
    "sequence.snapshot-ordering": _only("false", _NOT_YET),
    "type": _only("table", "other kinds of tables have no snapshots of their own"),
    "pk-clustering-override": _only("false", "it replaces the order by key inside of files"),
    "chain-table.enabled": _only("false", "it needs the last level to keep deletes"),
    "primary-key.nullable": _only("false", _NOT_YET),
    "upsert-key": _never(_NOT_YET),
    "branch-merge.enabled": _only("false", _NOT_YET),
    DATA_EVOLUTION_ENABLED.key: _only("false", _APPEND_FEATURE),
    "clustering.incremental": _only("false", _NOT_YET),
    "blob-field": _never(_NOT_YET),
    "blob-descriptor-field": _never(_NOT_YET),
    "blob-view-field": _never(_NOT_YET),
    "blob-external-storage-field": _never(_NOT_YET),
    "blob-external-storage-path": _never(_NOT_YET),
    "blob.stored-descriptor-fields": _never(_NOT_YET),
    "vector-field": _never(_NOT_YET),
    "pk-vector.index.columns": _never(_INDEX),
    "pk-btree.index.columns": _never(_INDEX),
    "pk-bitmap.index.columns": _never(_INDEX),
    "pk-full-text.index.columns": _never(_INDEX),
    "pk-multivalue.index.columns": _never(_INDEX),
    "global-index.external-path": _never(_INDEX),
    "global-index.column-update-action": _never(_INDEX),
    "query-auth.enabled": _only(
        "false", "a catalog server would have to be asked before each read, and bucketline does not ask"
    ),
    "lock.enabled": _only("false", "no catalog lock is taken; a snapshot is published by create-if-absent"),
    "commit.callbacks": _never("Java classes cannot be called; " + _LOST),
    "tag.callbacks": _never("Java classes cannot be called; " + _LOST),
    "metadata.iceberg.storage": _only("disabled", _ICEBERG),
    "metadata.iceberg-compatible": _only("false", _ICEBERG),
    "commit.strict-mode.last-safe-snapshot": _never(_NOT_YET),
    "metastore.tag-to-partition": _never("partitions would not be registered; " + _LOST),
}
"""Restricted options: for each key the values with which a table can be written."""
