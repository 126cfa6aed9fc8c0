"""Which plans of Spark are nothing but columns of files."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from bucketline.streaming.batch.files.given_scan import given_scan
from bucketline.streaming.batch.files.parquet_batch import reads_one_file_source
from bucketline.streaming.batch.files.plain_scan import (
    ALIAS,
    ATTRIBUTE,
    FILE_SCAN,
    PROJECT,
    RDD_SCAN,
    columns_of,
    scanned_fields,
)
from bucketline.streaming.batch.identity import BatchIdentity
from bucketline.streaming.tasks.parquet_fit import UnfitFileError

EXECUTION = "org.apache.spark.sql.execution."


def attribute(number: int, name: str = "a", **changed: Any) -> dict[str, Any]:
    told = {"name": name, "dataType": "long", "nullable": True, "metadata": {}}
    return {"class": ATTRIBUTE, "num-children": 0, **told, "exprId": {"id": number, "jvmId": "j"}} | changed


def alias(number: int, *of: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"class": ALIAS, "num-children": 1, "exprId": {"id": number, "jvmId": "j"}}, *of]


def node(name: str, children: int = 1, **fields: Any) -> dict[str, Any]:
    return {"class": name if "." in name else f"{EXECUTION}{name}", "num-children": children, **fields}


LEAF = node(RDD_SCAN, 0, output=[[attribute(0, "a")], [attribute(1, "b")], [attribute(2, "c")]])


def test_columns_are_followed_through_projections_to_the_leaf() -> None:
    plan = [
        node("WholeStageCodegenExec"),
        node(PROJECT, projectList=[[attribute(9)], [attribute(1)], alias(12, attribute(9))]),
        node(PROJECT, projectList=[alias(9, attribute(2)), [attribute(1)]]),
        node("InputAdapter"),
        LEAF,
    ]
    assert columns_of(json.dumps(plan), RDD_SCAN).places == (2, 1, 2)
    assert columns_of(json.dumps([LEAF]), RDD_SCAN).places == (0, 1, 2)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        ([node("FilterExec", condition=[]), LEAF], "made by FilterExec"),
        ([node("UnionExec", 2), LEAF, LEAF], "made by UnionExec"),
        ([node("InputAdapter", 2), LEAF], "made of several"),
        ([node("InMemoryTableScanExec", 0)], "made by InMemoryTableScanExec"),
        ([node(FILE_SCAN, 0, output=[])], "made by FileSourceScanExec"),
        ([node(PROJECT, projectList=[alias(9, node("Cast"), attribute(1))]), LEAF], "computed by Cast"),
        ([node(PROJECT, projectList=[alias(9, node("Literal", 0))]), LEAF], "computed by Literal"),
        ([node(PROJECT, projectList=[[node("Rand", 0)]]), LEAF], "computed by Rand"),
        ([node(PROJECT, projectList=[[attribute(7)]]), LEAF], "not a column of the files"),
        ([node(RDD_SCAN, 0, output=[[attribute(0)], [attribute(0)]])], "have the same id"),
    ],
)
def test_any_other_plan_is_for_spark(plan: list[Any], why: str) -> None:
    with pytest.raises(UnfitFileError, match=why):
        columns_of(json.dumps(plan), RDD_SCAN)


def scan(**changed: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("a", "b")]
    told: dict[str, Any] = {
        "relation": None,
        "stream": None,
        "output": [[attribute(0, "a")], [attribute(1, "b", metadata={"comment": "x"})]],
        "requiredSchema": {"type": "struct", "fields": fields},
        "partitionFilters": [],
        "dataFilters": [],
        "disableBucketedScan": False,
    }
    return node(FILE_SCAN, 0, **(told | changed))


def test_a_scan_of_all_rows_says_which_columns_of_the_files_it_reads() -> None:
    assert [f["name"] for f in scanned_fields(scan())] == ["a", "b"]
    of_spark_43 = scan(markedForSingleTaskExecution=False)
    assert scanned_fields(of_spark_43) == scanned_fields(scan())


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"dataFilters": [[attribute(0)]]}, "filtered"),
        ({"partitionFilters": [[attribute(0)]]}, "filtered"),
        ({"optionalBucketSet": None}, "the unknown field optionalBucketSet"),
        ({"tableIdentifier": {}}, "the unknown field tableIdentifier"),
        ({"markedForSingleTaskExecution": True}, "one task has to read all files"),
        (
            {"output": [[attribute(0, "a")], [attribute(1, "b")], [attribute(2, "file_name")]]},
            "columns that are not in the files",
        ),
        (
            {"output": [[attribute(0, "a")], [attribute(1, "b", dataType="integer")]]},
            "columns that are not in the files",
        ),
        ({"output": [], "requiredSchema": {"fields": []}}, "columns that are not in the files"),
        ({"output": [[attribute(0, "a")], [attribute(1, "b", nullable=False)]]}, "is NOT NULL"),
        ({"output": [[attribute(0, "a")], [attribute(1, "b", metadata={"EXISTS_DEFAULT": "1"})]]}, "EXISTS_DEFAULT"),
    ],
)
def test_a_scan_that_does_more_than_read_columns_is_for_spark(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(UnfitFileError, match=why):
        scanned_fields(scan(**changed))


@pytest.mark.parametrize(
    ("ends", "is_one"),
    [
        ('[{"logOffset": 3}]', True),
        ('[{"logOffset": 3}, {"logOffset": 1}]', False),
        ('[{"topic": {"0": 7}}]', False),
        ('["text"]', False),
        (None, False),
    ],
)
def test_the_offsets_of_a_batch_say_whether_it_reads_one_file_source(ends: str | None, is_one: bool) -> None:
    assert reads_one_file_source(BatchIdentity("q", 1, None, ends, None)) is is_one


class Plan:
    """A plan of Spark of which only the JSON is known."""

    def __init__(self, text: str) -> None:
        self.text = text

    def toJSON(self) -> str:
        return self.text


@pytest.mark.parametrize("text", ["[]", "no JSON", "[[]]", '[{"class": "x"}]', json.dumps([LEAF | {"output": [[{}]]}])])
def test_a_plan_of_another_form_is_for_spark(text: str) -> None:
    execution = SimpleNamespace(executedPlan=lambda: Plan(text))
    frame = SimpleNamespace(_jdf=SimpleNamespace(queryExecution=lambda: execution))
    with pytest.raises(UnfitFileError):
        given_scan(frame, SimpleNamespace(lastExecution=lambda: execution))


def test_a_query_that_does_not_say_how_it_is_planned_is_for_spark() -> None:
    for query in (None, SimpleNamespace(lastExecution=lambda: None)):
        with pytest.raises(UnfitFileError, match="the query has no executed plan"):
            given_scan(None, query)
