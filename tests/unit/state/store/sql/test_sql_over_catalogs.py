"""The same statements over folders, a database and a REST server that keep the names."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bucketline as bl
from bucketline.state.errors import StorageError
from tests.support.servers.rest_server import RestServer

STATEMENTS: tuple[tuple[str, list[Any]], ...] = (
    ("CREATE DATABASE shop; CREATE DATABASE IF NOT EXISTS shop; USE shop", [("OK",)]),
    ("SHOW DATABASES", [("default",), ("shop",)]),
    (
        "CREATE TABLE t (id INT COMMENT 'key', v DECIMAL(6,2), dt STRING, PRIMARY KEY (id, dt) NOT ENFORCED) "
        "COMMENT 'c' PARTITIONED BY (dt) WITH ('bucket'='2'); CREATE TABLE u LIKE t",
        [("OK",)],
    ),
    ("SHOW TABLES", [("shop", "t"), ("shop", "u")]),
    ("INSERT INTO t VALUES (1, 1.5, 'a'), (2, 2, 'a'), (3, 3, 'b')", [(1,)]),
    ("INSERT OVERWRITE t PARTITION (dt = 'b') VALUES (4, 4)", [(2,)]),
    ("UPDATE t SET v = v * 2 WHERE id = 1; DELETE FROM t WHERE id = 2", [(4,)]),
    ("INSERT INTO u SELECT id, v + 1, dt FROM t", [(1,)]),
    (
        "MERGE INTO t USING u ON t.id = u.id AND t.dt = u.dt WHEN MATCHED AND u.id = 1 THEN UPDATE SET * "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
        [(5,)],
    ),
    ("SELECT id, CAST(v AS STRING) FROM t", [(1, "4.00")]),
    ("SELECT count(*) FROM t VERSION AS OF 1", [(3,)]),
    ("CALL sys.create_tag(`table` => 'shop.t', tag => 'first', snapshot => 1)", None),
    ("SELECT count(*) FROM t VERSION AS OF 'first'; SELECT tag_name FROM t$tags", [("first",)]),
    ("CALL sys.compact('t'); SELECT DISTINCT level FROM t$files", [(5,)]),
    ("SELECT commit_kind FROM `t$snapshots` WHERE snapshot_id > 4", [("APPEND",), ("COMPACT",)]),
    ("CALL sys.create_branch('t', 'b', 'first'); SELECT count(*) FROM t$branch_b", [(3,)]),
    ("CALL sys.fast_forward('t', 'b'); SELECT count(*) FROM t", [(3,)]),
    ("CALL sys.delete_branch('t', 'b'); SELECT * FROM t$branches", []),
    ("CALL sys.rollback('t', 'first'); SELECT max(snapshot_id) FROM t$snapshots", [(1,)]),
    ("CALL sys.rescale('t', 3); SELECT value FROM t$options WHERE key = 'bucket'", [("3",)]),
    ("CALL sys.expire_snapshots(`table` => 't', retain_max => 1, retain_min => 1)", [(1,)]),
    ("CALL sys.remove_orphan_files(`table` => 'shop.*')", None),
    ("CALL sys.delete_tag('t', 'first'); SELECT count(*) FROM t$tags", [(0,)]),
    ("ALTER TABLE t CREATE TAG old; ALTER TABLE t CREATE TAG IF NOT EXISTS old RETAIN 1 DAYS; SHOW TAGS t", [("old",)]),
    ("ALTER TABLE t DELETE TAG old; ALTER TABLE t DELETE TAG IF EXISTS old; SHOW TAGS t", []),
    ("ALTER TABLE t ADD COLUMN w INT FIRST; ALTER TABLE t RENAME COLUMN v TO x", [("OK",)]),
    ("ALTER TABLE t SET ('file.format'='orc'); SHOW COLUMNS IN t", [("dt",), ("id",), ("w",), ("x",)]),
    ("SHOW TBLPROPERTIES t ('file.format')", [("file.format", "orc")]),
    ("SHOW PARTITIONS t PARTITION (dt = 'b')", [("dt=b",)]),
    ("ALTER TABLE t RENAME TO shop.s; SHOW TABLES LIKE 's'", [("shop", "s")]),
    ("ALTER TABLE s DROP PARTITION (dt='a'); SHOW PARTITIONS s", [("dt=b",)]),
    ("TRUNCATE TABLE s; SELECT count(*) FROM s", [(0,)]),
    ("DROP TABLE s; DROP TABLE IF EXISTS s; SHOW TABLES", [("shop", "u")]),
    ("DROP DATABASE shop CASCADE; SHOW DATABASES", [("default",)]),
)


@pytest.fixture(params=["filesystem", "jdbc", "rest"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, str]]:
    if request.param == "rest":
        with RestServer(tmp_path) as server:
            yield server.options
        return
    own = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/names.db"} if request.param == "jdbc" else {}
    yield {"warehouse": str(tmp_path / "lake"), **own}


def test_statements_mean_the_same_whoever_keeps_the_names(options: dict[str, str]) -> None:
    bl.sql(None, "CREATE DATABASE IF NOT EXISTS default", options)
    for text, expected in STATEMENTS:
        found = [tuple(row.values()) for row in bl.sql(None, text, options).to_pylist()]
        assert expected is None or sorted(found, key=repr) == expected, text


def test_a_statement_takes_tables_of_several_catalogs(tmp_path: Path) -> None:
    asked = []

    def lend(name: str) -> dict[str, object]:
        asked.append(name)
        return {"token": {"s3.region": "r"}, "expiresAtMillis": 1}

    with RestServer(tmp_path / "r", defaults={"data-token.enabled": "true"}, token=lend) as server:
        given = ", ".join(f"'{key}' = '{value}'" for key, value in server.options.items())
        warehouse = str(tmp_path / "own")

        def run(text: str) -> list[Any]:
            return [tuple(row.values()) for row in bl.sql(None, text, warehouse).to_pylist()]

        names = f"'metastore'='jdbc', 'uri'='jdbc:sqlite:{tmp_path}/names.db', 'warehouse'='{tmp_path}/j'"
        run(f"CREATE CATALOG r WITH ('type'='paimon', {given}); CREATE CATALOG j WITH ('type'='paimon', {names})")
        run("CREATE DATABASE r.shop; CREATE TABLE r.shop.t (a INT PRIMARY KEY NOT ENFORCED, b STRING) COMMENT 'c'")
        run("INSERT INTO r.shop.t VALUES (1, 'x'), (2, 'y'); CREATE DATABASE j.shop")
        run("CREATE TABLE j.shop.t LIKE r.shop.t")
        assert run("INSERT INTO j.shop.t SELECT * FROM r.shop.t WHERE a > 1; SELECT * FROM j.shop.t") == [(2, "y")]
        run("CREATE TABLE t LIKE r.shop.t; INSERT INTO t SELECT * FROM r.shop.t; INSERT INTO t VALUES (3, 'z')")
        # A table by path: it belongs to no server, though the one that it was made like does.
        assert bl.open_table(f"{warehouse}/default.db/t").write(bl.open_table(f"{warehouse}/default.db/t").to_arrow())
        assert "bucketline.catalog" not in run("SHOW CREATE TABLE r.shop.t")[0][0]
        run("MERGE INTO r.shop.t USING j.shop.t AS s ON r.shop.t.a = s.a WHEN MATCHED THEN DELETE")
        assert run("SELECT a FROM r.shop.t") == [(1,)] and set(asked) == {"shop.t"}
        before = len(asked)
        assert run("SELECT count(*) FROM r.shop.t") == [(1,)] and len(asked) > before  # the keys had ended
        assert run("SHOW DATABASES IN j") == [("shop",)]
        run("USE CATALOG j; USE shop; ALTER TABLE t RENAME TO u")
        assert run("SHOW TABLES") == [("shop", "u")] and run("USE paimon.default; SHOW TABLES") == [("default", "t")]
        run("CALL j.sys.create_tag('shop.u', 'x', 1)")  # a procedure is in a catalog, as its tables are
        assert run("SHOW TAGS j.shop.u") == run("SELECT tag_name FROM j.shop.u$tags") == [("x",)]
        wrong = given.replace("some-bearer-token", "another")
        run(f"CREATE CATALOG w WITH ('type'='paimon', {wrong})")
        with pytest.raises(StorageError, match=r"401 who are you.*check the option 'token'"):
            run("SELECT * FROM w.shop.t")
