"""Databases and tables by name, in folders of the local disk and of S3."""

import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import bucketline as bl
from bucketline.conf.errors import OptionError
from bucketline.state.errors import DatabaseNotFoundError, TableNotFoundError, UnsupportedTableError
from bucketline.state.format.table_name import TableName, parse_table_name
from bucketline.state.store.table.table import handle_of
from tests.support.servers.s3_server import BUCKET, S3Server

COLUMNS = "id BIGINT NOT NULL, v STRING"
ROWS = pa.table({"id": [1, 2], "v": ["a", "b"]})


@pytest.fixture(params=["disk", "s3"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> bl.Catalog:
    if request.param == "disk":
        return bl.catalog(str(tmp_path / "warehouse"))
    server: S3Server = request.getfixturevalue("s3_server")
    return bl.catalog({"warehouse": server.new_uri().removesuffix("/shop.db/t"), **server.storage})


def test_tables_are_made_opened_listed_and_dropped_by_name(shop: bl.Catalog) -> None:
    assert shop.list_databases() == []
    shop.create_database("shop")
    shop.create_database("shop", exist_ok=True)
    with pytest.raises(OptionError, match="Database shop already exists"):
        shop.create_database("shop")
    assert (shop.list_databases(), shop.list_tables("shop")) == (["shop"], [])
    made = shop.create_table("shop.orders", COLUMNS, ["id"], options={"bucket": "1"}, comment="all orders")
    made.write(ROWS)
    assert made.uri == f"{shop.warehouse}/shop.db/orders"
    assert (
        shop.table("shop.orders")
        .to_arrow()
        .equals(bl.open_table(made.uri, storage_options=handle_of(made).storage).to_arrow())
    )
    with pytest.raises(OptionError, match=r"Table shop\.orders already exists"):
        shop.create_table("shop.orders", COLUMNS)
    assert shop.create_table("shop.orders", "x INT", exist_ok=True).comment == "all orders"
    with pytest.raises(OptionError, match="not empty: it has orders"):
        shop.drop_database("shop")
    shop.drop_table("shop.orders")
    assert (shop.list_tables("shop"), shop.has_table("shop.orders")) == ([], False)
    assert shop.list_databases() == ["shop"]
    with pytest.raises(TableNotFoundError, match=r"no table shop\.orders"):
        shop.drop_table("shop.orders")
    shop.drop_table("shop.orders", missing_ok=True)
    shop.drop_database("shop")
    assert shop.list_databases() == []
    shop.drop_database("shop", missing_ok=True)


def test_a_cascade_takes_the_tables_too(shop: bl.Catalog) -> None:
    shop.create_database("shop")
    table = shop.create_table("shop.orders", COLUMNS)
    table.write(ROWS)
    shop.drop_database("shop", cascade=True)
    assert shop.list_databases() == [] and handle_of(table).io.list_files(table.path) == []


def test_a_name_without_a_database_is_in_default_which_is_made_at_need(shop: bl.Catalog) -> None:
    assert shop.list_tables() == []
    shop.create_table("orders", COLUMNS)
    assert (shop.list_databases(), shop.list_tables()) == (["default"], ["orders"])
    assert shop.table("default.orders").uri == shop.table("orders").uri


def test_what_is_missing_is_named(shop: bl.Catalog) -> None:
    with pytest.raises(DatabaseNotFoundError, match="Database shop does not exist"):
        shop.create_table("shop.orders", COLUMNS)
    with pytest.raises(DatabaseNotFoundError, match="Database shop does not exist"):
        shop.table("shop.orders")
    with pytest.raises(DatabaseNotFoundError):
        shop.list_tables("shop")
    with pytest.raises(DatabaseNotFoundError):
        shop.drop_database("shop")
    shop.create_database("shop")
    with pytest.raises(TableNotFoundError, match=r"there is no table shop\.orders in the warehouse"):
        shop.table("shop.orders")
    assert shop.list_tables("shop") == []


def test_a_table_is_renamed_with_its_rows_also_into_another_database(tmp_path: Path) -> None:
    shop = bl.catalog(str(tmp_path))
    shop.create_database("shop")
    shop.create_database("old")
    shop.create_table("shop.orders", COLUMNS).write(ROWS)
    shop.create_table("shop.taken", COLUMNS)
    with pytest.raises(OptionError, match=r"shop\.taken already exists"):
        shop.rename_table("shop.orders", "shop.taken")
    with pytest.raises(DatabaseNotFoundError):
        shop.rename_table("shop.orders", "nowhere.orders")
    with pytest.raises(TableNotFoundError):
        shop.rename_table("shop.order", "shop.orders2")
    shop.rename_table("shop.orders", "old.orders")
    assert (shop.list_tables("shop"), shop.list_tables("old")) == (["taken"], ["orders"])
    assert shop.table("old.orders").to_arrow().num_rows == 2


def test_no_table_is_renamed_where_files_would_be_copied_one_by_one(s3_server: S3Server) -> None:
    shop = bl.catalog(f"s3://{BUCKET}/renames", s3_server.storage)
    shop.create_table("orders", COLUMNS, exist_ok=True)
    with pytest.raises(UnsupportedTableError, match="copies a folder file by file"):
        shop.rename_table("orders", "default.sales")
    assert shop.list_tables() == ["orders"]


def test_a_branch_is_part_of_the_name_of_a_table_that_is_opened(tmp_path: Path) -> None:
    shop = bl.catalog(str(tmp_path))
    table = shop.create_table("orders", COLUMNS)
    table.write(ROWS)
    table.create_tag("before")
    table.create_branch("test", tag="before")
    table.write(ROWS)
    assert shop.table("orders$branch_test").to_arrow().num_rows == 2
    assert shop.table("orders").to_arrow().num_rows == 4
    assert shop.table("orders$branch_main").options == table.options
    assert shop.has_table("orders$branch_test") and shop.has_table("orders$branch_main")
    assert not shop.has_table("orders$branch_other") and not shop.has_table("others$branch_test")
    with pytest.raises(OptionError, match="name two different branches"):
        shop.table("orders$branch_test", options={"branch": "other"})
    with pytest.raises(OptionError, match="drop_table is for tables, and cannot be used for the branch 'test'"):
        shop.drop_table("orders$branch_test")
    with pytest.raises(OptionError, match="is a system table"):
        shop.table("orders$snapshots")


def test_a_table_with_files_elsewhere_is_not_dropped(tmp_path: Path) -> None:
    shop = bl.catalog(str(tmp_path))
    path = Path(shop.create_table("orders", COLUMNS).path) / "schema/schema-0"
    schema = json.loads(path.read_text())
    schema["options"]["data-file.external-paths"] = "file:/elsewhere"
    path.write_text(json.dumps(schema))
    with pytest.raises(UnsupportedTableError, match="files outside its folder"):
        shop.drop_table("orders")
    assert path.exists()


def test_a_catalog_gives_its_defaults_to_new_tables_and_keeps_to_lower_case(tmp_path: Path) -> None:
    shop = bl.catalog({"warehouse": str(tmp_path), "table-default.bucket": "3", "case-sensitive": "false"})
    assert shop.create_table("orders", COLUMNS, ["id"]).options["bucket"] == "3"
    assert shop.create_table("sales", COLUMNS, ["id"], options={"bucket": "2"}).options["bucket"] == "2"
    for act in (shop.create_table, shop.table):
        with pytest.raises(OptionError, match="not in lower case"):
            act("Orders", COLUMNS) if act == shop.create_table else act("Orders")
    with pytest.raises(OptionError, match="not in lower case"):
        shop.create_database("Shop")


def test_a_catalog_can_be_pickled_and_shows_no_secret(s3_server: S3Server) -> None:
    shop = bl.catalog({"warehouse": f"s3://{BUCKET}/pickled", **s3_server.storage})
    assert s3_server.storage["s3.secret-key"] not in repr(shop)
    assert pickle.loads(pickle.dumps(shop)).list_databases() == shop.list_databases()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warehose": "/w"}, "did you mean 'warehouse'"),
        ({}, "'warehouse' is required"),
        ({"warehouse": ""}, "warehouse"),
        ({"warehouse": "/w", "metastore": "hive"}, "metastore"),
        ({"warehouse": "/w", "case-sensitive": "maybe"}, "case-sensitive"),
        ({"warehouse": "/w", "s3.regin": "x"}, "did you mean 's3.region'"),
        ({"warehouse": "/w", "s3.region": "a"}, "has two different values"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        bl.catalog(options, {"s3.region": "b"})


def test_a_name_is_database_and_table_and_perhaps_a_branch() -> None:
    assert parse_table_name("shop.orders") == TableName("shop", "orders")
    assert parse_table_name("orders") == TableName("default", "orders")
    assert parse_table_name("shop.a.b") == TableName("shop", "a.b")
    assert str(parse_table_name("shop.orders$branch_b1")) == "shop.orders$branch_b1"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "shop.",
        ".orders",
        "..",
        "shop...",
        " .t",
        "a/b",
        "shop.a/b",
        "../x.t",
        "shop.a\\b",
        "sys.tables",
        "a\0",
    ],
)
def test_names_that_no_folder_can_have_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        bl.catalog(str(tmp_path)).create_table(name, COLUMNS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "..", "a/b", "sys", "a.b", "a$b"])
def test_databases_that_no_folder_can_have_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        bl.catalog(str(tmp_path)).create_database(name)
    assert list(tmp_path.iterdir()) == []


def test_the_page_about_catalogs_does_what_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[5] / "docs/catalogs.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    exec(code.replace("/data/warehouse", str(tmp_path)), {})
    assert bl.catalog(str(tmp_path)).list_databases() == []
