"""The object of a table's merge engine. Only this module distinguishes merge engines."""

from collections.abc import Mapping

from bucketline.conf.table.merge_options import MergeEngine
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.aggregation import AggregationMerging
from bucketline.state.lsm.merge.deduplicate import DeduplicateMerging
from bucketline.state.lsm.merge.first_row import FirstRowMerging
from bucketline.state.lsm.merge.fold import Fold
from bucketline.state.lsm.merge.merging import Merging
from bucketline.state.lsm.merge.no_key import NoKey
from bucketline.state.lsm.merge.partial_update_merging import PartialUpdateMerging

_ENGINES: Mapping[MergeEngine, type[Merging]] = {
    MergeEngine.DEDUPLICATE: DeduplicateMerging,
    MergeEngine.PARTIAL_UPDATE: PartialUpdateMerging,
    MergeEngine.AGGREGATION: AggregationMerging,
    MergeEngine.FIRST_ROW: FirstRowMerging,
}


def merging_of(schema: TableSchema) -> Merging:
    """Returns the merge engine of a table. For a table without a primary key it is an engine that keeps every row."""
    return _ENGINES[schema.settings.merge.engine](schema) if schema.primary_keys else NoKey(schema)


def fold_for(schema: TableSchema) -> Fold:
    """Returns the fold of a table. Raises the errors of `Merging`."""
    return merging_of(schema).fold()
