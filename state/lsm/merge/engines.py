"""Returns the object for a table's merge engine, or for a table without a primary key. Only this module distinguishes
merge engines by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bucketline.conf.table.merge_options import MergeEngine
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.lsm.merge.aggregation import AggregationMerging
from bucketline.state.lsm.merge.deduplicate import DeduplicateMerging
from bucketline.state.lsm.merge.first_row import FirstRowMerging
from bucketline.state.lsm.merge.fold import Fold, KeepAll
from bucketline.state.lsm.merge.merging import Merging
from bucketline.state.lsm.merge.partial_update_merging import PartialUpdateMerging


@dataclass(frozen=True, slots=True)
class NoKey(Merging):
    """Stands for the merge engine in a table without a primary key: no rows are merged, every row stays, and the order
    of rows does not matter.
    """

    takes_updates = True

    def fold(self) -> Fold:
        return KeepAll()

    def order_matters(self) -> bool:
        return False

    def takes_deletes(self) -> bool:
        return True


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
    """Returns the fold of a table, which is the function that merges the rows of each key. Raises the errors that
    `Merging` describes.
    """
    return merging_of(schema).fold()
