"""Encodes plans, leases and results as JSON, and decodes them. Only this library reads these files.

Each file contains the version of its layout. A file with another version is refused with an error that names the file.
"""

import json
from collections.abc import Mapping
from typing import Any

from bucketline.state.errors import CorruptFileError
from bucketline.state.plans.lease import Lease, Release
from bucketline.state.plans.plan import InputFile, Item, ItemResult, ItemState, Plan

VERSION = 1


def encode_plan(plan: Plan) -> bytes:
    items = [
        {
            "partition": i.partition.hex(),
            "bucket": i.bucket,
            "totalBuckets": i.total_buckets,
            "inputs": [{"file": f.name, "level": f.level, "bytes": f.size_bytes} for f in i.inputs],
            "outputLevel": i.output_level,
            "fileRewrite": i.file_rewrite,
            "vectorFiles": list(i.vector_files),
        }
        for i in plan.items
    ]
    return _encode(
        {
            "plan": plan.plan_id,
            "baseSnapshot": plan.base_snapshot,
            "schema": plan.schema_id,
            "strategy": plan.strategy,
            "madeMs": plan.made_ms,
            "items": items,
        }
    )


def decode_plan(data: bytes, path: str) -> Plan:
    """Decodes a file with a plan of compactions, and returns the plan. Raises CorruptFileError, which names the file,
    if the file cannot be decoded.
    """
    members = _decode(data, path)
    with _naming(path):
        return Plan(
            plan_id=str(members["plan"]),
            base_snapshot=int(members["baseSnapshot"]),
            schema_id=int(members["schema"]),
            strategy=str(members["strategy"]),
            made_ms=int(members["madeMs"]),
            items=tuple(_item(number, i) for number, i in enumerate(members["items"])),
        )


def encode_lease(lease: Lease) -> bytes:
    return _encode({"owner": lease.owner, "periodMs": lease.period_ms})


def decode_lease(data: bytes, path: str) -> Lease:
    """Decodes a file with a lease, and returns the lease. Raises CorruptFileError, which names the file, if the file
    cannot be decoded.
    """
    members = _decode(data, path)
    with _naming(path):
        return Lease(str(members["owner"]), int(members["periodMs"]))


def encode_release(release: Release) -> bytes:
    return _encode({"failure": release.failure})


def decode_release(data: bytes, path: str) -> Release:
    """Decodes a file with a release, which says why the owner of a lease gave an item back, and returns the release.
    Raises CorruptFileError, which names the file, if the file cannot be decoded.
    """
    return Release(_text_or_none(_decode(data, path).get("failure")))


def encode_result(result: ItemResult) -> bytes:
    return _encode({"state": result.state.value, "snapshot": result.snapshot_id, "reason": result.reason})


def decode_result(data: bytes, path: str) -> ItemResult:
    """Decodes the result file of a plan's item (the compaction of one bucket). Raises CorruptFileError, which names the
    file, if the file cannot be decoded.
    """
    members = _decode(data, path)
    with _naming(path):
        snapshot = members.get("snapshot")
        return ItemResult(
            ItemState(members["state"]),
            None if snapshot is None else int(snapshot),
            _text_or_none(members.get("reason")),
        )


def _item(number: int, members: Mapping[str, Any]) -> Item:
    return Item(
        number=number,
        partition=bytes.fromhex(members["partition"]),
        bucket=int(members["bucket"]),
        total_buckets=int(members["totalBuckets"]),
        inputs=tuple(InputFile(str(f["file"]), int(f["level"]), int(f["bytes"])) for f in members["inputs"]),
        output_level=int(members["outputLevel"]),
        file_rewrite=bool(members["fileRewrite"]),
        vector_files=tuple(str(name) for name in members["vectorFiles"]),
    )


def _encode(members: Mapping[str, object]) -> bytes:
    return json.dumps({"version": VERSION, **members}, indent=1).encode()


def _decode(data: bytes, path: str) -> Mapping[str, Any]:
    with _naming(path):
        members = json.loads(data)
        version = members["version"]
    if version != VERSION:
        raise CorruptFileError(
            f"{path} has version {version!r}, but this release reads {VERSION}; use one release in all processes",
            path=path,
            found=version,
            expected=VERSION,
        )
    assert isinstance(members, dict)
    return members


class _naming:
    """A context manager that turns errors of decoding into a CorruptFileError that names the file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError | KeyError | TypeError | AttributeError | OverflowError | RecursionError):
            raise CorruptFileError(f"{self._path} cannot be read: {error!r}", path=self._path) from error


def _text_or_none(value: object) -> str | None:
    return None if value is None else str(value)
