"""Whether the order in which the rows of a key arrive decides what a table shows of the key."""

from bucketline.conf.table.choices import MergeEngine
from bucketline.state.format.schema_json import TableSchema
from bucketline.state.lsm.aggregate.functions import COMMUTING
from bucketline.state.lsm.merge.merge_engines import aggregation_fold


def order_matters(schema: TableSchema) -> bool:
    """False where rows of a key may arrive in any order: there is no key, `sequence.field` or sequence groups order
    each column, or all aggregate functions give the same result in any order.

    Rows with equal values of their sequence fields count as ordered. Raises as `fold_for`.
    """
    merge = schema.settings.merge
    if not schema.primary_keys or merge.sequence_fields:
        return False
    if merge.engine is MergeEngine.AGGREGATION:
        fold = aggregation_fold(schema)
        return fold.remove_on_delete or any(c.name not in COMMUTING for c in fold.columns.values())
    if merge.engine is MergeEngine.PARTIAL_UPDATE:
        ordered = {n for group in schema.settings.columns.sequence_groups for n in (*group.sequence, *group.columns)}
        free = {f.name for f in schema.fields} - ordered - {*schema.primary_keys, *schema.partition_keys}
        return merge.partial_update_removes or bool(free)
    return True
