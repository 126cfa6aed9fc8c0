"""Checks that a plan of Spark does nothing but choose and rename the columns of one source of rows.

The physical plan is read as the JSON that Spark makes of it, in which every node has the name of its class. If a class
or a field of the JSON is unknown, UnfitFileError is raised, and Spark reads the DataFrame.

Source: Spark 4.0 to 4.3 TreeNode.toJSON, FileSourceScanExec, ProjectExec, RDDScanExec.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bucketline.streaming.tasks.parquet_fit import UnfitFileError

_EXECUTION = "org.apache.spark.sql.execution."
_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
PROJECT = f"{_EXECUTION}ProjectExec"
FILE_SCAN = f"{_EXECUTION}FileSourceScanExec"
RDD_SCAN = f"{_EXECUTION}RDDScanExec"
ATTRIBUTE, ALIAS = f"{_EXPRESSIONS}AttributeReference", f"{_EXPRESSIONS}Alias"
_SAME_ROWS = frozenset(
    {f"{_EXECUTION}{name}" for name in ("WholeStageCodegenExec", "InputAdapter", "ColumnarToRowExec")}
)
_OF_SCAN = frozenset(
    {
        "class",
        "num-children",
        "relation",
        "stream",
        "output",
        "requiredSchema",
        "partitionFilters",
        "dataFilters",
        "disableBucketedScan",
    }
)
"""The fields of a scan that reads all rows of all its files. Spark leaves out fields that are not set."""
_OF_ONE_TASK = "markedForSingleTaskExecution"
"""The field with which Spark 4.3 says whether one task has to read all files."""
_OF_NO_EFFECT = frozenset({"comment"})

PlanNode = Mapping[str, Any]
_Id = tuple[int, str]


@dataclass(frozen=True, slots=True)
class PlanColumns:
    """The columns of Spark's plan for a DataFrame. `leaf` is the node of the plan that reads the rows. `places` has for
    each column of the DataFrame its position among the columns of `leaf`.
    """

    leaf: PlanNode
    places: tuple[int, ...]


def columns_of(plan: str, leaf_class: str) -> PlanColumns:
    """Takes a plan of Spark as JSON. Returns the columns of the plan's result, and from which column of the files each
    of them comes. The plan may only choose and rename the columns of one leaf (the step that reads the files), whose
    class must be `leaf_class`.

    Raises UnfitFileError for any other plan.
    """
    nodes: list[PlanNode] = json.loads(plan)
    *above, leaf = nodes
    for node in above:
        if node["class"] != PROJECT and node["class"] not in _SAME_ROWS:
            raise UnfitFileError(
                f"the DataFrame is made by {_named(node)}, a step of Spark that only Spark can carry out"
            )
        if node["num-children"] != 1:
            raise UnfitFileError("the DataFrame is made of several DataFrames")
    if leaf["class"] != leaf_class or leaf["num-children"] != 0:
        raise UnfitFileError(f"the DataFrame is made by {_named(leaf)}, a step of Spark that only Spark can carry out")
    ids = [_id(_only(tree)) for tree in leaf["output"]]
    place_of = dict(zip(ids, range(len(ids)), strict=True))
    if len(place_of) < len(ids):
        raise UnfitFileError("two columns of Spark's plan have the same id")
    places = tuple(range(len(ids)))
    for node in reversed(above):
        if node["class"] == PROJECT:
            chosen = [_chosen(tree) for tree in node["projectList"]]
            if any(source not in place_of for _, source in chosen):
                raise UnfitFileError("a column of the DataFrame is not a column of the files")
            places = tuple(place_of[source] for _, source in chosen)
            place_of = {new: place_of[source] for new, source in chosen}
    return PlanColumns(leaf, places)


def scanned_fields(scan: PlanNode) -> list[dict[str, Any]]:
    """Returns the columns that a scan reads from its files, as the JSON of Spark's schema. Raises UnfitFileError for a
    scan that leaves out rows, or that adds columns or values which are not in the files.
    """
    unknown = sorted(scan.keys() - _OF_SCAN - {_OF_ONE_TASK})
    if unknown:
        raise UnfitFileError(f"Spark's scan of the files has the unknown field {unknown[0]}")
    if scan.get(_OF_ONE_TASK, False) is not False:
        raise UnfitFileError("one task has to read all files")
    if scan["partitionFilters"] or scan["dataFilters"]:
        raise UnfitFileError("the files are filtered")
    fields: list[dict[str, Any]] = scan["requiredSchema"]["fields"]
    output = [_only(tree) for tree in scan["output"]]
    if [(a["name"], a["dataType"]) for a in output] != [(f["name"], f["type"]) for f in fields] or not fields:
        raise UnfitFileError("Spark's scan has columns that are not in the files")
    for column in (*output, *fields):
        if column["metadata"].keys() - _OF_NO_EFFECT:
            keys = ", ".join(sorted(column["metadata"]))
            raise UnfitFileError(f"tasks do not read columns with metadata, but column {column['name']!r} has {keys}")
        if column["nullable"] is not True:
            raise UnfitFileError(f"tasks read only nullable columns, but column {column['name']!r} is NOT NULL")
    return fields


def _chosen(tree: Sequence[PlanNode]) -> tuple[_Id, _Id]:
    """Takes one column of a projection in Spark's plan: either a plain column, or another name for a column (`a AS b`).
    Returns the id of the projection's column, and the id of the input column. The two ids are equal for a plain column.
    """
    if len(tree) == 2 and tree[0]["class"] == ALIAS and tree[0]["num-children"] == 1:
        return _id(tree[0]), _id(_only(tree[1:]))
    own = _id(_only(tree))
    return own, own


def _only(tree: Sequence[PlanNode]) -> PlanNode:
    if len(tree) != 1 or tree[0]["class"] != ATTRIBUTE:
        raise UnfitFileError(f"a column is computed by {_named(tree[1 if tree[0]['class'] == ALIAS else 0])}")
    return tree[0]


def _id(node: PlanNode) -> _Id:
    return int(node["exprId"]["id"]), str(node["exprId"]["jvmId"])


def _named(node: PlanNode) -> str:
    return str(node["class"]).rpartition(".")[2]
