"""What can be the name of a table, a database, a branch or a tag."""

from pathlib import Path

import pytest

from bucketline.conf.errors import OptionError
from bucketline.state.store.table.table import create_table, open_table


@pytest.mark.parametrize("name", [".", ".."])
def test_one_and_two_dots_are_no_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = create_table(str(tmp_path / "w.db" / "t"), "id INT")
    for path in (name, f"{tmp_path}/w.db/{name}", f"file:{tmp_path}/w.db/{name}/", f"{tmp_path}/{name}.db/t"):
        with pytest.raises(OptionError, match=r"is no name of a (table|database)"):
            create_table(path, "id INT")
    with pytest.raises(OptionError, match="are no names"):
        table.create_tag(name)
    with pytest.raises(OptionError, match="are no names"):
        table.create_branch(name)
    with pytest.raises(OptionError, match="no name of a branch"):
        open_table(table.path, options={"branch": name})
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["schema", "schema-0", "t", "w.db"]


def test_a_path_through_dots_is_as_good_as_any(tmp_path: Path) -> None:
    made = create_table(f"{tmp_path}/a/../w.db/t/", "id INT")
    assert made.path == f"{tmp_path}/w.db/t"
