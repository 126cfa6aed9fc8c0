"""MERGE INTO with conditions and several clauses, beside a reference that goes row by row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bucketline as bl
from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.state.errors import SchemaMismatchError

Row = tuple[int, int | None, str | None]
SCHEMA = pa.schema([("k", pa.int32()), ("v", pa.int32()), ("c", pa.string())])
KEYED = "CREATE TABLE t (k INT, v INT, c STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket'='2'"
SORTS = {
    "merge on read": f"{KEYED})",
    "vectors": f"{KEYED}, 'deletion-vectors.enabled'='true')",
    "append": "CREATE TABLE t (k INT, v INT, c STRING)",
    "append vectors": "CREATE TABLE t (k INT, v INT, c STRING) WITH ('deletion-vectors.enabled'='true')",
}
ON: dict[str, Callable[[Row, Row], bool | None]] = {
    "t.k = s.k": lambda t, s: t[0] == s[0],
    "(s.k = t.k) AND t.v < s.v": lambda t, s: t[0] == s[0] and less(t[1], s[1]),
    "t.k = s.k AND t.v > 2": lambda t, s: t[0] == s[0] and less(2, t[1]),
    "t.k = s.k + 1 AND s.c <=> t.c": lambda t, s: t[0] == s[0] + 1 and t[2] == s[2],
    "t.k = 3": lambda t, s: t[0] == 3,
}
JOINED: dict[str, Callable[[Row], int]] = {"t.k = s.k + 1 AND s.c <=> t.c": lambda s: s[0] + 1, "t.k = 3": lambda s: 3}
PAIR: dict[str, Callable[[Row, Row], bool | None]] = {
    "t.v = s.v": lambda t, s: None if t[1] is None or s[1] is None else t[1] == s[1],
    "s.c = 'x' OR t.v IS NULL": lambda t, s: s[2] == "x" or t[1] is None,
    "12 / t.k > 3": lambda t, s: t[0] < 4,
}
OF_SOURCE: dict[str, Callable[[Row], bool | None]] = {
    "v > 2": lambda s: less(2, s[1]),
    "s.c IN ('x', 'y')": lambda s: s[2] in ("x", "y"),
}
OF_TARGET: dict[str, Callable[[Row], bool | None]] = {
    "t.v < 3": lambda t: less(t[1], 3),
    "c IS NOT NULL": lambda t: t[2] is not None,
}
UPDATES: dict[str, Callable[[Row, Row], Row]] = {
    "SET *": lambda t, s: (t[0], s[1], s[2]),
    "SET t.v = s.v + t.v, c = 'new'": lambda t, s: (t[0], plus(s[1], t[1]), "new"),
    "SET v = NULL": lambda t, s: (t[0], None, t[2]),
}
OWN_UPDATES: dict[str, Callable[[Row], Row]] = {"SET v = v + 1": lambda t: (t[0], plus(t[1], 1), t[2])}
INSERTS: dict[str, Callable[[Row], Row]] = {
    "INSERT *": lambda s: s,
    "INSERT (c, k) VALUES (s.c || '!', k)": lambda s: (s[0], None, None if s[2] is None else s[2] + "!"),
}
Clause = tuple[str, Any, str, Any]
"""What WHEN ... AND asks and what THEN does, each as SQL and as Python; a None deletes."""


def less(a: int | None, b: int | None) -> bool | None:
    return None if a is None or b is None else a < b


def plus(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


@dataclass
class Expected:
    """The rows afterwards, and which of them are new, each with what its source row is joined by; `doubled` says that
    several source rows match one row that may change."""

    rows: list[Row] = field(default_factory=list)
    new: list[tuple[Row, int]] = field(default_factory=list)
    doubled: bool = False

    def replaces(self, target: Sequence[Row]) -> bool:
        """Whether a new row could replace another in a table with a primary key."""
        taken = {row[0] for row in target}
        others = [row[0] for row, _ in self.new]
        return len(set(others)) < len(others) or any(r[0] != joined or r[0] in taken for r, joined in self.new)


def reference(target: Sequence[Row], source: Sequence[Row], on: str, clauses: dict[str, list[Clause]]) -> Expected:
    """What a merge does, one row at a time."""
    found, matches = Expected(), ON[on]
    for t in target:
        pairs = [s for s in source if matches(t, s)]
        if len(pairs) > 1 and clauses["MATCHED"]:
            found.doubled = True
        seen = (t, pairs[0]) if pairs else (t,)
        kind = "MATCHED" if pairs else "NOT MATCHED BY SOURCE"
        taken = next((c for c in clauses[kind] if c[1] is None or c[1](*seen)), None)
        if taken is None:
            found.rows.append(t)
        elif taken[3] is not None:
            found.rows.append(taken[3](*seen))
    for s in source:
        taken = next((c for c in clauses["NOT MATCHED"] if c[1] is None or c[1](s)), None)
        if taken is not None and not any(matches(t, s) for t in target):
            found.rows.append(taken[3](s))
            found.new.append((taken[3](s), JOINED.get(on, lambda s: s[0])(s)))
    return found


def chains(conditions: dict[str, Any], actions: dict[str, Any]) -> st.SearchStrategy[list[Clause]]:
    asked = st.tuples(st.sampled_from(list(conditions.items())), st.sampled_from(list(actions.items())))
    last = st.lists(st.sampled_from(list(actions.items())), max_size=1)
    return st.tuples(st.lists(asked, max_size=2), last).map(
        lambda found: [(*c, *a) for c, a in found[0]] + [("", None, *a) for a in found[1]]
    )


ROWS = st.lists(
    st.tuples(st.integers(1, 6), st.none() | st.integers(0, 5), st.sampled_from(["x", "y", None])),
    max_size=6,
)
CLAUSES = st.fixed_dictionaries(
    {
        "MATCHED": chains(PAIR, {f"UPDATE {k}": v for k, v in UPDATES.items()} | {"DELETE": None}),
        "NOT MATCHED": chains(OF_SOURCE, INSERTS),
        "NOT MATCHED BY SOURCE": chains(
            OF_TARGET, {f"UPDATE {k}": v for k, v in OWN_UPDATES.items()} | {"DELETE": None}
        ),
    }
).filter(lambda found: any(found.values()))


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(list(SORTS)), ROWS, ROWS, st.sampled_from(list(ON)), CLAUSES)
def test_a_merge_does_what_a_loop_over_rows_does(
    sort: str, target: list[Row], source: list[Row], on: str, clauses: dict[str, list[Clause]]
) -> None:
    keyed = sort in ("merge on read", "vectors")
    if keyed:
        target = list({row[0]: row for row in target}.values())
    whens = [
        f"WHEN {kind} {'AND ' + asked if asked else ''} THEN {action}"
        for kind, found in clauses.items()
        for asked, _, action, _ in found
    ]
    expected = reference(target, source, on, clauses)
    with TemporaryDirectory() as folder:
        bl.sql(None, f"{SORTS[sort]}; CREATE TABLE s (k INT, v INT, c STRING)", folder)
        for name, rows in (("t", target), ("s", source)):
            table = bl.catalog(folder).table(f"default.{name}")
            table.write(pa.Table.from_pylist([dict(zip("kvc", row, strict=True)) for row in rows], SCHEMA))
        refused = ""
        try:
            bl.sql(None, f"MERGE INTO t USING s ON {on} {' '.join(whens)}", folder)
        except SchemaMismatchError as e:
            refused = e.message
        held = [(r["k"], r["v"], r["c"]) for r in bl.catalog(folder).table("default.t").to_arrow().to_pylist()]
    replaces = keyed and expected.replaces(target)
    assert bool(refused) == (expected.doubled or replaces), refused
    assert "match the row of the table" not in refused or expected.doubled
    assert sorted(held, key=repr) == sorted(target if refused else expected.rows, key=repr)


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], list[Any]]:
    def rows(text: str) -> list[Any]:
        return [tuple(row.values()) for row in bl.sql(None, text, str(tmp_path)).to_pylist()]

    return rows


def test_the_examples_of_paimons_documentation_run(run: Callable[[str], list[Any]]) -> None:
    run(
        "CREATE TABLE target (a INT NOT NULL, b INT, c STRING) TBLPROPERTIES ('primary-key'='a', 'bucket'='2');"
        "CREATE TABLE source (a INT, b INT, c STRING);"
        "INSERT INTO target VALUES (1, 10, 'c1'), (2, 20, 'c2'), (3, 30, 'c3'), (4, 40, 'c4'), (5, 50, 'c5');"
        "INSERT INTO source VALUES (1, 100, 'c11'), (3, 300, 'c33'), (5, 500, 'c55'), (7, 700, 'c77'), (9, 900, 'c99')"
    )
    (snapshot,) = run(
        "MERGE INTO target USING source ON target.a = source.a "
        "WHEN MATCHED AND target.a = 5 THEN UPDATE SET b = source.b + target.b "
        "WHEN MATCHED AND source.c > 'c2' THEN UPDATE SET * "
        "WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED AND c > 'c9' THEN INSERT (a, b, c) VALUES (a, b * 1.1, c) "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    rows = [(2, 20, "c2"), (3, 300, "c33"), (4, 40, "c4"), (5, 550, "c5"), (7, 700, "c77"), (9, 990, "c99")]
    assert run("SELECT * FROM target ORDER BY a") == rows
    assert snapshot == (2,) and run("SELECT commit_kind FROM target$snapshots WHERE snapshot_id = 2") == [("APPEND",)]
    run(
        "MERGE INTO target AS t USING (VALUES (2, 5), (8, 80)) AS s (id, add) ON t.a = s.id AND t.c = 'c2' "
        "WHEN MATCHED THEN UPDATE SET t.b = t.b + s.add WHEN NOT MATCHED BY SOURCE AND t.a > 5 THEN DELETE "
        "WHEN NOT MATCHED BY SOURCE AND t.a = 3 THEN UPDATE SET c = 'kept'"
    )
    assert run("SELECT * FROM target ORDER BY a") == [(2, 25, "c2"), (3, 300, "kept"), (4, 40, "c4"), (5, 550, "c5")]


def test_flinks_procedure_merges_as_the_statement_does(run: Callable[[str], list[Any]]) -> None:
    run(
        "CREATE TABLE T (id INT PRIMARY KEY NOT ENFORCED, price INT, c STRING); CREATE TABLE S (order_id INT, c STRING)"
    )
    run("INSERT INTO T VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')")
    run("INSERT INTO S VALUES (1, 'x'), (2, 'd'), (4, 'y')")
    conditions = "'T.id=S.order_id', 'S.c <> ''d''', 'price=T.price+20', '', 'order_id, 0, S.c', 'S.c = ''d'''"
    run(f"CALL sys.merge_into('default.T', '', '', 'default.S', {conditions})")
    assert run("SELECT * FROM T ORDER BY id") == [(1, 30, "a"), (3, 30, "c"), (4, 0, "y")]
    run(
        "CALL paimon.sys.merge_into(target_table => 'default.T', target_alias => 'X', source_table => 'S', "
        "merge_condition => 'X.id = S.order_id', not_matched_by_source_delete_condition => 'X.price > 20')"
    )
    assert run("SELECT id FROM T ORDER BY id") == [(1,), (4,)]


def test_the_source_is_read_at_its_version_and_its_names_are_found_in_any_case(
    run: Callable[[str], list[Any]],
) -> None:
    run("CREATE TABLE t (k INT PRIMARY KEY NOT ENFORCED, V INT, dt DATE); CREATE TABLE s (K INT, v INT, Dt DATE)")
    run("INSERT INTO s VALUES (1, 1, DATE '2026-01-01'); INSERT INTO s VALUES (2, 2, NULL)")
    run("MERGE INTO t USING s VERSION AS OF 1 AS x ON T.k = X.k WHEN NOT MATCHED THEN INSERT *")
    assert run("SELECT * FROM t")[0][:2] == (1, 1)
    run(
        "MERGE INTO t USING s ON s.k = t.k AND t.dt = '2026-01-01' WHEN MATCHED AND t.dt < DATE '2027-01-01' THEN "
        "UPDATE SET v = 7, dt = '2026-02-02', k = s.k"
    )
    assert [str(v) for v in run("SELECT * FROM t")[0]] == ["1", "7", "2026-02-02"]


@pytest.mark.parametrize("table", SORTS)
def test_a_source_row_whose_key_is_null_matches_nothing_also_where_no_other_row_is_dealt_to_its_share(
    run: Callable[[str], list[Any]], table: str
) -> None:
    run(f"{SORTS[table]}; INSERT INTO t VALUES (1, 1, 'a'), (2, 2, 'b')")
    source = "(SELECT CAST(NULL AS INT) AS k, 7 AS v)"
    run(f"MERGE INTO t USING {source} s ON t.k = s.k WHEN MATCHED THEN DELETE")
    run(f"MERGE INTO t USING {source} s ON t.k = s.k AND t.c = 'a' WHEN MATCHED THEN UPDATE SET v = s.v")
    assert run("SELECT * FROM t ORDER BY k") == [(1, 1, "a"), (2, 2, "b")]
    run(f"MERGE INTO t USING {source} s ON t.k = s.k WHEN NOT MATCHED BY SOURCE AND t.v = 1 THEN DELETE")
    assert run("SELECT * FROM t ORDER BY k") == [(2, 2, "b")]


@pytest.fixture(scope="module")
def two_tables(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("merge"))
    bl.sql(None, "CREATE TABLE t (k INT PRIMARY KEY NOT ENFORCED, v INT, w INT); CREATE TABLE s (k INT, v INT)", folder)
    bl.sql(None, "INSERT INTO t VALUES (1, 1, 1); INSERT INTO s VALUES (1, 2), (3, 4)", folder)
    return folder


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("ON t.k > s.k WHEN MATCHED THEN DELETE", OptionError, r"at least one condition t\.column = value of s"),
        ("ON t.v = s.v WHEN NOT MATCHED THEN INSERT *", OptionError, "for a column of the primary key"),
        (
            "ON t.k = s.k WHEN MATCHED AND v = 1 THEN DELETE",
            OptionError,
            r"'v' can mean t\.v, s\.v; write which of them is meant",
        ),
        ("ON t.k = s.x WHEN MATCHED THEN DELETE", OptionError, r"unknown column 's\.x'; t has k, v, w; s has k, v$"),
        ("ON t.k = s.k WHEN MATCHED AND t.v THEN DELETE", OptionError, "not a condition"),
        ("ON t.k = s.k WHEN MATCHED AND t.v = (SELECT 1) THEN DELETE", OptionError, "a query in .* is not supported"),
        ("ON t.k = s.k WHEN MATCHED THEN UPDATE SET k = s.v", SchemaMismatchError, "part of the primary key"),
        ("ON t.k = s.k WHEN MATCHED THEN UPDATE SET k = s.k", OptionError, "only columns that ON makes equal"),
        ("ON t.k = s.k WHEN MATCHED THEN UPDATE SET x = 1", OptionError, "unknown column 'x'; there are k, v, w"),
        ("ON t.k = s.k WHEN MATCHED THEN UPDATE SET *", OptionError, r"SET \* needs column 'w' in the source"),
        ("ON t.k = s.k WHEN NOT MATCHED THEN INSERT *", OptionError, r"INSERT \* needs column 'w' in the source"),
        (
            "ON t.k = s.k WHEN NOT MATCHED AND t.v = 1 THEN INSERT (k) VALUES (k)",
            OptionError,
            "only columns of the source",
        ),
        ("ON t.k = s.k WHEN NOT MATCHED BY SOURCE AND s.v = 1 THEN DELETE", OptionError, "only columns of the table"),
        (
            "ON t.k = s.k AND t.v > 100 WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)",
            SchemaMismatchError,
            "a source row with k = 1 matches no row of the table by the whole ON condition, but the table has a row",
        ),
        (
            "ON t.k = s.k WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k + 1, s.v)",
            SchemaMismatchError,
            "the merge inserts a 'k' that differs from the value that ON compares",
        ),
    ],
)
def test_what_a_merge_does_not_take_is_named_and_changes_nothing(
    two_tables: str, text: str, kind: type[BucketlineError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        bl.sql(None, f"MERGE INTO t USING s {text}", two_tables)
    assert bl.sql(None, "SELECT * FROM t", two_tables).to_pylist() == [{"k": 1, "v": 1, "w": 1}]


def test_values_of_the_source_take_the_types_of_the_columns(tmp_path: Path, run: Callable[[str], list[Any]]) -> None:
    run("CREATE TABLE t (k INT PRIMARY KEY NOT ENFORCED, at TIMESTAMP(6), d DATE, n DECIMAL(6, 2), a ARRAY<INT>)")
    run("CREATE TABLE s (k BIGINT, at TIMESTAMP_LTZ(6), d STRING, n DOUBLE, a ARRAY<INT>)")
    source = bl.catalog(str(tmp_path)).table("default.s")
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    source.write(pa.Table.from_pylist([{"k": 1, "at": noon, "d": "2024-05-05", "n": 1.239, "a": [1]}], source.schema))
    run("MERGE INTO t USING s ON t.k = s.k WHEN NOT MATCHED THEN INSERT VALUES (k, at, CAST(d AS DATE), n, a)")
    row = (1, datetime(2024, 1, 1, 12), date(2024, 5, 5), Decimal("1.24"), [1])
    assert run("SELECT * FROM t") == [row]
    run(
        "MERGE INTO t USING s ON t.k = s.k AND t.d = DATE '2024-05-05' WHEN MATCHED AND t.at = '2024-01-01 12:00:00' "
        "THEN UPDATE SET d = '2025-01-01', n = 7, a = NULL, at = TIMESTAMP '2024-01-01 13:00:00'"
    )
    assert run("SELECT * FROM t") == [(1, datetime(2024, 1, 1, 13), date(2025, 1, 1), Decimal("7.00"), None)]
    with pytest.raises(SchemaMismatchError, match="column d: expected DATE, found string"):
        run("MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET d = s.d")
