"""Tables whose manifests say something else than what their writer knew."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.manifest import (
    decode_manifest,
    decode_manifest_list,
    encode_manifest,
    encode_manifest_list,
)


def edit_manifests(path: Path, change: Callable[[DataFileMeta], DataFileMeta]) -> None:
    """Passes the data file of each manifest entry of a table through `change`; sizes that are recorded are mended."""
    for file in (path / "manifest").glob("manifest-[!l]*"):
        entries = decode_manifest(file.read_bytes())
        file.write_bytes(encode_manifest([replace(e, file=change(e.file)) for e in entries]))
    for file in (path / "manifest").glob("manifest-list-*"):
        metas = decode_manifest_list(file.read_bytes())
        sizes = [(path / "manifest" / m.file_name).stat().st_size for m in metas]
        file.write_bytes(encode_manifest_list([replace(m, file_size=n) for m, n in zip(metas, sizes, strict=True)]))
    for file in (*path.glob("snapshot/snapshot-*"), *path.glob("changelog/changelog-*")):
        members = json.loads(file.read_text())
        file.write_text(json.dumps({k: v for k, v in members.items() if not k.endswith("ListSize")}))
