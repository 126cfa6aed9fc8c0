"""Branches with commits of their own: another table's metadata and files, put into a table as its branch."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from bucketline.state.store.table.table import Table


def graft(table: Table, name: str, other: Table) -> None:
    """Makes the branch `name` of what `other` has committed, which goes to the branch and leaves its own place."""
    home, source = Path(table.path), Path(other.path)
    branch = home / "branch" / f"branch-{name}"
    for folder in sorted(p for p in source.iterdir() if p.is_dir()):
        target = branch if folder.name in ("schema", "snapshot", "tag", "changelog") else home
        shutil.copytree(folder, target / folder.name, dirs_exist_ok=True)
    shutil.rmtree(source)


def set_times(root: Path, times_ms: Sequence[int]) -> None:
    """Says of the snapshots below a folder of metadata, oldest first, when they were committed."""
    files = sorted((root / "snapshot").glob("snapshot-*"), key=lambda p: int(p.name.partition("-")[2]))
    for file, time_ms in zip(files, times_ms, strict=True):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"timeMillis": time_ms}))
