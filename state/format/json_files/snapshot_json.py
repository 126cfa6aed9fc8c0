"""Snapshot files: the JSON of one Snapshot.

Source: Paimon 2.0 Snapshot (version 3; versions 1 and 2 have fewer members).
"""

import json
import re

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.entries import CommitKind, Snapshot
from bucketline.state.format.near_names import check_names
from bucketline.state.format.paths import checked_name

CURRENT_VERSION = 3
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_LONG = range(-(2**63), 2**63)
_MEMBERS = frozenset(
    (
        *("version", "uuid", "id", "schemaId", "commitUser", "commitIdentifier", "commitKind", "timeMillis"),
        *("baseManifestList", "baseManifestListSize", "deltaManifestList", "deltaManifestListSize"),
        *("changelogManifestList", "changelogManifestListSize", "indexManifest", "statistics", "properties"),
        *("totalRecordCount", "deltaRecordCount", "changelogRecordCount", "watermark", "nextRowId", "operation"),
    )
)


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Returns the bytes of a snapshot file, with the members in the order in which Paimon's Java code writes them. A
    member that is None is left out, because Java never writes null.
    """
    s = snapshot
    members: dict[str, object] = {
        "version": s.version,
        "uuid": s.uuid,
        "id": s.id,
        "schemaId": s.schema_id,
        "baseManifestList": s.base_manifest_list,
        "baseManifestListSize": s.base_manifest_list_size,
        "deltaManifestList": s.delta_manifest_list,
        "deltaManifestListSize": s.delta_manifest_list_size,
        "changelogManifestList": s.changelog_manifest_list,
        "changelogManifestListSize": s.changelog_manifest_list_size,
        "indexManifest": s.index_manifest,
        "commitUser": s.commit_user,
        "commitIdentifier": s.commit_identifier,
        "commitKind": s.commit_kind.value,
        "timeMillis": s.time_ms,
        "totalRecordCount": s.total_record_count,
        "deltaRecordCount": s.delta_record_count,
        "changelogRecordCount": s.changelog_record_count,
        "watermark": s.watermark,
        "statistics": s.statistics,
        "properties": s.properties or None,
        "nextRowId": s.next_row_id,
        "operation": s.operation,
    }
    return json.dumps({k: v for k, v in members.items() if v is not None}, indent=2, ensure_ascii=False).encode()


def decode_snapshot(data: bytes) -> Snapshot:
    """Returns the snapshot in a snapshot or tag file. Unknown members are ignored, and a null member counts as missing.

    Raises CorruptFileError, which names the member, if the bytes are no snapshot, or if a file of version 1 or 2 lacks
    its record counts. Also raises CorruptFileError if this release does not know the version of the file.
    """
    try:
        members = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise CorruptFileError(f"not a snapshot file: {e!r}") from e
    if not isinstance(members, dict):
        raise CorruptFileError("not a snapshot file: the content is no JSON object")
    check_names(members, _MEMBERS, "snapshot member")
    version = _integer(members, "version")
    if not 1 <= version <= CURRENT_VERSION:
        raise CorruptFileError(
            f"snapshot version {version} is not one of the versions 1 to {CURRENT_VERSION}, which this release reads; "
            "a newer release may read it",
            version=version,
        )
    return Snapshot(
        id=_integer(members, "id"),
        schema_id=_integer(members, "schemaId"),
        base_manifest_list=_name(members, "baseManifestList"),
        delta_manifest_list=_name(members, "deltaManifestList"),
        commit_user=_text(members, "commitUser"),
        commit_identifier=_integer(members, "commitIdentifier"),
        commit_kind=_commit_kind(_text(members, "commitKind")),
        time_ms=_integer(members, "timeMillis"),
        total_record_count=_integer(members, "totalRecordCount"),
        delta_record_count=_integer(members, "deltaRecordCount"),
        base_manifest_list_size=_size(members, "baseManifestListSize"),
        delta_manifest_list_size=_size(members, "deltaManifestListSize"),
        changelog_manifest_list=_optional_name(members, "changelogManifestList"),
        changelog_manifest_list_size=_size(members, "changelogManifestListSize"),
        changelog_record_count=_optional_integer(members, "changelogRecordCount"),
        index_manifest=_optional_name(members, "indexManifest"),
        watermark=_optional_integer(members, "watermark"),
        statistics=_optional_name(members, "statistics"),
        properties=_properties(members),
        next_row_id=_optional_integer(members, "nextRowId"),
        operation=_optional_text(members, "operation"),
        uuid=_optional_text(members, "uuid"),
        version=version,
    )


def _optional_integer(members: dict[str, object], member: str) -> int | None:
    value = members.get(member)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value not in _LONG:
        raise CorruptFileError(f"snapshot member {member} is {value!r}, which is no 64-bit integer", member=member)
    return value


def _integer(members: dict[str, object], member: str) -> int:
    value = _optional_integer(members, member)
    if value is None:
        raise CorruptFileError(f"snapshot member {member} is missing", member=member)
    return value


def _size(members: dict[str, object], member: str) -> int | None:
    value = _optional_integer(members, member)
    if value is not None and value < 0:
        raise CorruptFileError(f"snapshot member {member} is {value}, which is negative", member=member)
    return value


def _name(members: dict[str, object], member: str) -> str:
    value = _text(members, member)
    try:
        return checked_name(value)
    except CorruptFileError as e:
        raise e.reworded(f"{member}: {e.message}", member=member) from e


def _optional_name(members: dict[str, object], member: str) -> str | None:
    return None if members.get(member) is None else _name(members, member)


def _optional_text(members: dict[str, object], member: str) -> str | None:
    value = members.get(member)
    return None if value is None else _checked_text(value, member)


def _text(members: dict[str, object], member: str) -> str:
    value = _optional_text(members, member)
    if value is None:
        raise CorruptFileError(f"snapshot member {member} is missing", member=member)
    return value


def _checked_text(value: object, member: str) -> str:
    # JSON can escape half of a surrogate pair, but no file name can contain it.
    if not isinstance(value, str) or _HALF_PAIR.search(value):
        raise CorruptFileError(f"snapshot member {member} is {value!r}, which is no valid string", member=member)
    return value


def _properties(members: dict[str, object]) -> dict[str, str]:
    value = members.get("properties")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CorruptFileError(f"snapshot member properties is {value!r}, which is no JSON object", member="properties")
    return {_checked_text(k, "properties"): _checked_text(v, "properties") for k, v in value.items()}


def _commit_kind(name: str) -> CommitKind:
    try:
        return CommitKind(name)
    except ValueError as e:
        raise CorruptFileError(
            f"snapshot member commitKind is {name!r}, which this release does not know", member="commitKind"
        ) from e
