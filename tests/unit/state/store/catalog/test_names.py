"""What can be the name of a table, a database, a branch or a tag."""

from pathlib import Path

import pyarrow as pa
import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.store.catalog.table_handle import open_handle
from bucketline.state.store.engine.engine import NO_ROWS
from bucketline.state.store.table.table import create_table, open_table
from bucketline.state.store.write.bucket_writer import CompactTrigger
from bucketline.state.store.write.table_at import table_at
from bucketline.state.store.write.write_plan import WriteScope


@pytest.mark.parametrize("name", [".", ".."])
def test_one_and_two_dots_are_no_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = create_table(str(tmp_path / "w.db" / "t"), "id INT")
    for path in (name, f"{tmp_path}/w.db/{name}", f"file:{tmp_path}/w.db/{name}/", f"{tmp_path}/{name}.db/t"):
        with pytest.raises(OptionError, match=r"is not a valid (table|database) name"):
            create_table(path, "id INT")
    with pytest.raises(OptionError, match="are not allowed"):
        table.create_tag(name)
    with pytest.raises(OptionError, match="are not allowed"):
        table.create_branch(name)
    with pytest.raises(OptionError, match="is not a valid branch name"):
        open_table(table.path, options={"branch": name})
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["schema", "schema-0", "t", "w.db"]


def test_a_path_through_dots_is_as_good_as_any(tmp_path: Path) -> None:
    made = create_table(f"{tmp_path}/a/../w.db/t/", "id INT")
    assert made.path == f"{tmp_path}/w.db/t"


@pytest.mark.parametrize("key", ["commit.user-prefix", "data-file.prefix", "changelog-file.prefix"])
@pytest.mark.parametrize("text", [".", "..", " .. ", "../up", "a/b", "/", "a\0b"])
def test_what_becomes_part_of_a_file_name_leads_into_no_other_folder(key: str, text: str, tmp_path: Path) -> None:
    path = str(tmp_path / "w.db" / "t")
    says = f"option '{key}' = .* becomes part of a file's name, so it must not be"
    with pytest.raises(OptionError, match=says):
        create_table(path, "id INT NOT NULL", ["id"], options={"bucket": "1", key: text})
    assert not Path(path).exists()
    table = create_table(path, "id INT NOT NULL", ["id"], options={"bucket": "1"})
    with pytest.raises(OptionError, match=says):
        table.set_options({key: text})
    with pytest.raises(OptionError, match=says):
        table_at(open_handle(path), {key: text})
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["schema", "schema-0", "t", "w.db"]


@pytest.mark.parametrize("key", ["commit.user-prefix", "data-file.prefix"])
@pytest.mark.parametrize("text", ["etl", "...", ".hidden", "team a", "a-s-b"])
def test_other_texts_are_good_parts_of_file_names(key: str, text: str, tmp_path: Path) -> None:
    table = create_table(
        str(tmp_path / "t"), "id INT NOT NULL", ["id"], options={"bucket": "1", "commit.user-prefix": "x", key: text}
    )
    table.write(pa.table({"id": [1]}).cast(table.schema))
    assert table.to_arrow()["id"].to_pylist() == [1]


def test_a_writer_of_a_postpone_table_is_refused_a_name_that_its_files_cannot_carry(tmp_path: Path) -> None:
    options = {"bucket": "-2"}
    session = table_at(
        open_handle(create_table(str(tmp_path / "t"), "id INT NOT NULL", ["id"], options=options).path), {}
    )
    session = session.refreshed()
    with pytest.raises(OptionError, match="choose another sink_id"):
        session.plan.mode.stages(session.plan, session, WriteScope(CompactTrigger.NONE, "query-s-1"), NO_ROWS)
    assert session.plan.mode.stages(session.plan, session, WriteScope(CompactTrigger.NONE, "query-1"), NO_ROWS)


@pytest.mark.parametrize("key", ["scan.fallback-branch", "scan.primary-branch", "branch"])
@pytest.mark.parametrize("name", ["..", "../../schema", "a/b"])
def test_a_branch_to_read_is_a_name_not_a_path(key: str, name: str, tmp_path: Path) -> None:
    table = create_table(str(tmp_path / "t"), "id INT NOT NULL", ["id"], options={"bucket": "1"})
    with pytest.raises(OptionError, match="is not a valid branch name"):
        open_table(table.path, options={key: name}).to_arrow()
