"""What `import bucketline` offers: typed, whole, and the same for a type checker as for a program."""

import ast
import pickle
from importlib import import_module
from inspect import getsource
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import bucketline as bl
from bucketline.state.store.table.table import handle_of

COLUMNS = "id BIGINT NOT NULL, name STRING, amount DECIMAL(10, 2)"


def imported_for_type_checkers() -> dict[str, str]:
    """Each name and the module it comes from."""
    tree = ast.parse(Path(bl.__file__).read_text(encoding="utf-8"))
    (block,) = [n for n in tree.body if isinstance(n, ast.If)]
    return {a.name: i.module or "" for i in block.body if isinstance(i, ast.ImportFrom) for a in i.names}


def test_every_public_name_is_the_one_that_type_checkers_see() -> None:
    declared = imported_for_type_checkers()
    assert sorted([*declared, "__version__"]) == sorted(bl.__all__) == dir(bl)
    for name, module in declared.items():
        assert getattr(bl, name) is getattr(import_module(module), name)


def test_every_error_can_be_caught_by_name() -> None:
    errors = [import_module(m) for m in ("bucketline.conf.errors", "bucketline.state.errors")]
    found = {n for m in errors for n, v in vars(m).items() if isinstance(v, type) and issubclass(v, bl.BucketlineError)}
    assert found <= set(bl.__all__)


def table(path: Path) -> bl.Table:
    found = bl.create_table(str(path / "shop.db/orders"), COLUMNS, primary_key=["id"], options={"bucket": "1"})
    amounts = pc.cast(pa.array([f"{i}.50" for i in range(20)]), pa.decimal128(10, 2))
    found.write(pa.table({"id": range(20), "name": [f"n{i}" for i in range(20)], "amount": amounts}))
    return found


def test_a_filter_is_sql_text_or_an_expression(tmp_path: Path) -> None:
    found = table(tmp_path)
    by_text = found.to_arrow(filter="amount > 7.5 AND name LIKE 'n1%'")
    assert by_text == found.to_arrow(
        filter=(pc.field("amount") > pa.scalar(7.5)) & pc.starts_with(pc.field("name"), "n1")
    )
    assert by_text["id"].to_pylist() == list(range(10, 20))
    found.delete("id >= 15")
    assert found.update("id = 3", {"name": "late"}) == found.snapshots()["snapshot_id"].to_pylist()[-1]
    assert found.to_arrow(["name"], "id IN (3, 15)")["name"].to_pylist() == ["late"]


@pytest.mark.parametrize("text", ["id >", "nobody = 1", "id = 'x'", "", "id = 1; DROP TABLE t"])
def test_text_that_is_no_condition_is_refused_and_nothing_is_written(tmp_path: Path, text: str) -> None:
    found = table(tmp_path)
    for act in (
        lambda: found.to_arrow(filter=text),
        lambda: found.delete(text),
        lambda: found.update(text, {"name": "x"}),
    ):
        with pytest.raises(bl.OptionError):
            act()
    assert found.snapshots().num_rows == 1


@pytest.mark.parametrize(("limit", "count"), [(0, 0), (7, 7), (100, 20), (None, 20)])
def test_a_limit_stops_the_read(tmp_path: Path, limit: int | None, count: int) -> None:
    found = table(tmp_path)
    assert found.to_arrow(limit=limit).num_rows == count
    assert sum(b.num_rows for b in found.to_batches(changes_since=0, limit=limit)) == count
    assert found.to_arrow(columns=["id"], filter="id < 5", limit=limit).num_rows == min(count, 5)


def test_a_negative_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(bl.OptionError, match="cannot be negative, but is -1"):
        table(tmp_path).to_arrow(limit=-1)


def test_a_table_that_exists_can_be_taken_as_it_is(tmp_path: Path) -> None:
    found = table(tmp_path)
    with pytest.raises(bl.OptionError, match="there is a table"):
        bl.create_table(found.path, COLUMNS, primary_key=["id"])
    again = bl.create_table(found.path, COLUMNS, primary_key=["id"], exist_ok=True)
    assert again.to_arrow().num_rows == 20 and again.options["bucket"] == "1"


def declared(kind: type) -> set[str]:
    """The public names that a type checker and an IDE see in a class and its bases."""
    bodies = [ast.parse(getsource(k)).body for k in kind.__mro__ if k is not object]
    found = [member for body in bodies for n in body if isinstance(n, ast.ClassDef) for member in n.body]
    methods = {n.name for n in found if isinstance(n, ast.FunctionDef)}
    fields = {n.target.id for n in found if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
    return {name for name in methods | fields if not name.startswith("_")}


def test_a_table_has_its_operations_and_nothing_else(tmp_path: Path) -> None:
    found = table(tmp_path)
    shown = {name for name in dir(found) if not name.startswith("_")}
    assert {"to_arrow", "write", "compact", "schema", "primary_key", "path"} <= shown == declared(bl.Table)
    for hidden in ("io", "manifests", "table_schema", "snapshot_store", "schema_store", "metadata_path", "storage"):
        assert not hasattr(found, hidden)
    with pytest.raises(AttributeError):
        found.comment = "other"  # type: ignore[misc]


def test_a_table_travels_and_is_the_same_afterwards(tmp_path: Path) -> None:
    options = {"scan.snapshot-id": "1", "compaction": "none"}
    found = bl.open_table(table(tmp_path).path, options=options, storage_options={})
    again = pickle.loads(pickle.dumps(found))
    assert again == found and again != bl.open_table(found.path)
    assert again.to_arrow() == found.to_arrow() and again.options["scan.snapshot-id"] == "1"
    assert repr(again) == f"Table({found.path!r})"


def test_a_subclass_keeps_its_kind_where_a_method_returns_the_table(tmp_path: Path) -> None:
    class Ours(bl.Table):
        pass

    found = Ours(handle_of(table(tmp_path)))
    assert type(found.refreshed()) is type(found.add_column("note", "STRING")) is Ours
    assert "note" in found.refreshed().schema.names
