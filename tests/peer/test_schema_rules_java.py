"""Tables and changes of them, drawn at random: what Paimon Java takes we take, and what it refuses we refuse.

What only we refuse is in the documents. A table that we have made is opened, written and read by Paimon.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from bucketline.conf.errors import BucketlineError
from bucketline.state.commit.schema_change import (
    AddColumn,
    ChangeNullability,
    ChangeType,
    DropColumn,
    RenameColumn,
    SchemaChange,
    SetOption,
    UnsetOption,
)
from bucketline.state.store.table.table import Table, create_table, handle_of
from bucketline.state.types.columns_text import parse_columns
from bucketline.state.types.logical import DataType
from tests.support.models.sweeps import share_of
from tests.support.peers.drawn_schemas import Case, Change, SchemaJudge, drawn_case, shown
from tests.support.peers.jars import CHECKOUT

pytestmark = pytest.mark.peer

CASES_OF_A_SEED = 50
SEEDS = range(share_of(12))

REFUSED_HERE: dict[str, tuple[str, str]] = {
    r"is not supported: ": ("options.md", "## Table options that are refused"),
    r"Change '[\w.-]+' is not supported yet": ("options.md", "options that the files of a table depend on"),
    r"cannot be stored in Avro": ("options.md", "timestamps finer than microseconds in Avro files"),
    r"cannot read MULTISET from Avro": ("options.md", "a MULTISET of anything but strings in Avro files"),
    r"when keys move between partitions: the delete": (
        "options.md",
        "`ignore-delete` where keys move between partitions",
    ),
    r"timestamps finer than microseconds": ("limits.md", "timestamps finer than microseconds"),
    r"must be one of parquet, avro, orc": ("options.md", "the formats `csv`, `json` and `text`"),
    r"should be at least": ("options.md", "below their least value"),
    r"can not be found in table schema": ("options.md", "a sequence group on a column that is not there"),
    r"which is not a column of the table": ("options.md", "row-deduplicate-ignore-fields` of such a column"),
    r"You should set time field for record-level": ("options.md", "without `record-level.time-field`"),
    r"cannot be converted to": ("options.md", "a type that does not hold every value of the old one"),
    r"Cannot update bucket key": ("options.md", "another type of a bucket key"),
    r"'full-compaction.delta-commits' cannot be used with": ("options.md", "`full-compaction.delta-commits` with"),
    r"manifest-sort\.": ("options.md", "`manifest-sort.enabled` without partitions"),
}
"""What we refuse although Paimon 1.4 takes it, by our message, and where that is written; Paimon 2.0 refuses some."""

NOT_OF_A_SCHEMA = (
    r"^write: .*MultisetType cannot be cast to class",  # Paimon reads a MULTISET in Avro, and cannot write one
    r"^write: .*Unrecognized codec: none",  # nor does it write Avro files without compression under that word
    r"^write: .*with a new bucket num",  # until the table is rescaled
)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaJudge]:
    with SchemaJudge(str(tmp_path_factory.mktemp("theirs"))) as peer:
        yield peer


@pytest.mark.parametrize("seed", SEEDS)
def test_we_and_paimon_take_the_same_tables_and_changes(tmp_path: Path, judge: SchemaJudge, seed: int) -> None:
    differences = []
    for number in range(CASES_OF_A_SEED):
        case = drawn_case(Random(f"{seed} {number}"))
        found = _difference(f"t{seed}_{number}", tmp_path / "db.db", case, judge)
        if found is not None:
            differences.append(f"{number}: {found}\n    {shown(case)}")
    assert not differences, "\n".join(differences)


def test_what_only_we_refuse_is_written_in_the_documents() -> None:
    for page, words in REFUSED_HERE.values():
        assert words in (CHECKOUT / "docs" / page).read_text(), (page, words)


def _difference(name: str, folder: Path, case: Case, judge: SchemaJudge) -> str | None:
    """The first thing that one of both takes and the other does not; None if they agree to the end."""
    theirs, path = judge.create(name, case), str(folder / name)
    try:
        table = create_table(path, case.text, case.primary_keys, case.partition_keys, dict(case.options))
    except BucketlineError as e:
        return _judged("create", theirs, e.message, None)
    found = _judged("create", theirs, None, judge.use(path))
    for change in case.changes if found is None and theirs is None else ():
        theirs = judge.alter(name, change)
        before, ours = handle_of(table.refreshed()).table_schema, None
        try:
            table = _changed(table.refreshed(), change)
        except BucketlineError as e:
            ours = e.message
        if theirs is not None and handle_of(table).table_schema.id == before.id and ours is None:
            return None  # it changed nothing here
        used = None if ours is not None else judge.use(path)
        if change.kind == "rename" and ours is used is None:
            theirs = None  # options that name a column follow more renames than Paimon's do
        found = _judged(str(change), theirs, ours, used)
        if found is not None or not _goes_on(theirs, ours):
            return found
    return found


def _goes_on(theirs: str | None, ours: str | None) -> bool:
    """Whether both tables are as before, or both have changed."""
    refused = theirs is not None and theirs.startswith("alter: ")
    return refused if ours is not None else theirs is None


def _judged(what: str, theirs: str | None, ours: str | None, used: str | None) -> str | None:
    if any(re.search(pattern, problem) for problem in (theirs, used) if problem for pattern in NOT_OF_A_SCHEMA):
        return None
    if ours is None and theirs is not None:
        return f"{what}: only Paimon refuses: {theirs}"
    if ours is None and used is not None:
        return f"{what}: Paimon cannot use our table: {used}"
    if ours is not None and theirs is None and not any(re.search(pattern, ours) for pattern in REFUSED_HERE):
        return f"{what}: only we refuse: {ours}"
    return None


def _changed(table: Table, change: Change) -> Table:
    if change.kind == "branch":
        if change.name not in table.branches():
            table.create_branch(change.name)
        return table
    return table.alter(_as_ours(change))


def _as_ours(change: Change) -> SchemaChange:
    path = (change.name,)
    match change.kind:
        case "add":
            return AddColumn(path, _type(change.value))
        case "drop":
            return DropColumn(path)
        case "rename":
            return RenameColumn(path, change.value)
        case "type":
            return ChangeType(path, _type(change.value))
        case "nullability":
            return ChangeNullability(path, change.value == "true")
        case "set":
            return SetOption(change.name, change.value)
    return UnsetOption(change.name)


def _type(text: str) -> DataType:
    return parse_columns(f"c {text}")[0].type
