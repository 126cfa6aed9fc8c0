"""Merge engines, changelog producers and storages are told apart in few places; all others ask what they do.

So a new one is added there, and in modules of its own. `test_bucket_mode.py` says the same of bucket modes.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("kind", "allowed"),
    [
        ("MergeEngine", {"conf/table/merge_options.py", "state/lsm/merge/engines.py"}),
        ("ChangelogProducer", {"conf/table/changelog_options.py"}),
    ],
)
def test_few_modules_know_members_apart(kind: str, allowed: set[str]) -> None:
    naming = {
        str(path.relative_to(ROOT))
        for top in ("conf", "state", "streaming")
        for path in (ROOT / top).rglob("*.py")
        if re.search(rf"{kind}(\.[A-Z]|\(|\[)", path.read_text(encoding="utf-8").replace(f"class {kind}(", ""))
    }
    assert naming == allowed


def test_only_the_choice_by_uri_and_locks_of_catalogs_know_storages_apart() -> None:
    """Others ask what a storage can do: `HasFolders`, `answers_late`. That it is this machine's disk may be known."""
    naming = {
        str(path.relative_to(ROOT))
        for top in ("conf", "state", "streaming")
        for path in (ROOT / top).rglob("*.py")
        if "objects" not in path.parts
        and re.search(r"import .*(HdfsIO|ObjectIO|hdfs_io_for|object_io_for)\b", path.read_text(encoding="utf-8"))
    }
    assert naming == {"state/store/storage/plain_io.py", "state/store/storage/linked_io.py"}
