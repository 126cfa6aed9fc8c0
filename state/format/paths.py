"""Every file and folder name of a table, made and parsed; all paths are relative to the table's folder.

Source: Paimon 2.0 FileStorePathFactory, DataFilePathFactory, PartitionPathUtils, InternalRowPartitionComputer.
"""

import re
from dataclasses import replace

from bucketline.state.errors import CorruptFileError
from bucketline.state.format.json_files.schema_json import TableSchema
from bucketline.state.format.partition_text import cast_text, legacy_text
from bucketline.state.types.binary_row import decode_row
from bucketline.state.types.logical import DataType, TypeRoot

SCHEMA_DIR = "schema"
SNAPSHOT_DIR = "snapshot"
MANIFEST_DIR = "manifest"
INDEX_DIR = "index"
STATISTICS_DIR = "statistics"
TAG_DIR = "tag"
TAG_SUCCESS_DIR = "tag-success-file"
"""The folder inside the folder of tags whose files say that a tag has been created."""
BRANCH_DIR = "branch"
CONSUMER_DIR = "consumer"
CHANGELOG_DIR = "changelog"
OWN_DIR = "bucketline"
"""Ours: notes of expiry, pins and announcements of removals. Paimon's tools do not look there."""
COMPACTION_DIR = "compaction"
"""Ours: plans of compactions, and who works on them. Paimon's tools do not look there."""
LATEST = "LATEST"
EARLIEST = "EARLIEST"

POSTPONE_BUCKET = -2

_ESCAPED = {code: f"%{code:02X}" for code in [*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{}[]^")]}
_ESCAPE = re.compile("%([0-9a-fA-F]{2})")
# Java's idea of white space, which leaves out the no-break spaces that Python's str.isspace has.
_SPACES = re.compile(r"[\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000]*")
_COMPRESSIONS = frozenset({"gz", "bz2", "deflate", "snappy", "lz4", "zst"})


def escape(text: str) -> str:
    """Returns the text as part of a folder name: control characters and `"#%'*/:=?\\{}[]^` become %XX."""
    return text.translate(_ESCAPED)


def unescape(text: str) -> str:
    """Returns the text that `escape` was given; a % that begins no escape stays."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def default_partition_name(schema: TableSchema) -> str:
    """Returns the text that stands for null, empty and blank values."""
    return schema.settings.paths.default_partition


def is_blank(text: str) -> bool:
    """Whether the name of the default partition stands for a text: Java's white space alone, or nothing."""
    return _SPACES.fullmatch(text) is not None


def partition_values(schema: TableSchema, partition: bytes) -> tuple[tuple[str, str], ...]:
    """Returns the (key, value) texts of a serialized partition, not escaped, in the order of the partition keys.

    Null, empty and blank values all become the name of the default partition. Names of the newer form hold
    TIMESTAMP_LTZ in the zone of the JVM; here it is UTC. Raises UnsupportedTableError for BINARY in legacy names, whose
    text nobody can repeat.
    """
    types = [f.type for f in schema.select(schema.partition_keys)]
    values = decode_row(partition, types)
    default = default_partition_name(schema)
    text_of = legacy_text if schema.settings.paths.legacy_names else _utc_text
    texts = []
    for key, value, data_type in zip(schema.partition_keys, values, types, strict=True):
        text = "" if value is None else text_of(value, data_type)
        texts.append((key, default if is_blank(text) else text))
    return tuple(texts)


def _utc_text(value: object, data_type: DataType) -> str:
    if data_type.root is TypeRoot.TIMESTAMP_LTZ:
        data_type = replace(data_type, root=TypeRoot.TIMESTAMP)
    return cast_text(value, data_type)


def partition_path(schema: TableSchema, partition: bytes) -> str:
    """Returns the folder of a partition, `k=v/k2=v2/`; empty for a table without partitions."""
    if not schema.partition_keys:
        return ""
    return "".join(f"{escape(key)}={escape(text)}/" for key, text in partition_values(schema, partition))


def bucket_path(schema: TableSchema, partition: bytes, bucket: int) -> str:
    """Returns the folder of a bucket's data files, `k=v/bucket-0`, below `data-file.path-directory` if the table has
    one.
    """
    directory = schema.settings.paths.data_directory
    return (f"{directory}/" if directory else "") + partition_path(schema, partition) + bucket_dir(bucket)


def index_folder(schema: TableSchema, partition: bytes, bucket: int) -> str:
    """Returns the folder of a bucket's index files: the folder that all buckets share, or that of the bucket's data
    files if the table's options say so.
    """
    return bucket_path(schema, partition, bucket) if schema.settings.paths.index_in_data_directory else INDEX_DIR


def new_file_folder(schema: TableSchema, partition: bytes, bucket: int) -> str:
    """Returns the folder of a bucket's new data files: that of `bucket_path`. Raises UnsupportedTableError where
    readers disagree about its name.
    """
    if not schema.settings.paths.legacy_names:
        fields = schema.select(schema.partition_keys)
        for field, value in zip(fields, decode_row(partition, [f.type for f in fields]), strict=True):
            if value is not None and field.type.root is TypeRoot.TIMESTAMP_LTZ:
                cast_text(value, field.type)
    return bucket_path(schema, partition, bucket)


def bucket_dir(bucket: int) -> str:
    """Returns the last part of a bucket's folder; postponed rows have one of their own."""
    return "bucket-postpone" if bucket == POSTPONE_BUCKET else f"bucket-{bucket}"


def parse_partition_path(path: str) -> tuple[tuple[str, str], ...]:
    """Returns the (key, value) texts of the `k=v` parts of a path, unescaped; other parts are passed over."""
    parts = [part.partition("=") for part in path.split("/") if "=" in part]
    return tuple((unescape(key), unescape(value)) for key, _, value in parts)


def data_file_name(prefix: str, uuid: str, counter: int, extension: str) -> str:
    """Returns the name of a data or changelog file. Each writer of files has a `uuid` of its own, and `counter` numbers
    its files from 0.
    """
    return f"{prefix}{uuid}-{counter}.{extension}"


def postpone_prefix(prefix: str, commit_user: str, write_id: int) -> str:
    """Returns the start of the names of a writer's postponed files, which replaces the table's data file prefix.

    The commit user must not contain `-s-`: readers look for the write id behind it.
    """
    assert "-s-" not in commit_user and write_id >= 0, f"no postpone file can be named for {commit_user}, {write_id}"
    return f"{prefix}-u-{commit_user}-s-{write_id}-w-"


def extension_of(file_name: str) -> str:
    """Returns the format of a data file, as its name says: `parquet`, `orc`, `avro`. Raises CorruptFileError without
    one.

    Source: Paimon 2.0 DataFilePathFactory.formatIdentifier.
    """
    parts = file_name.split(".")
    if len(parts) > 2 and parts[-1] in _COMPRESSIONS:
        parts.pop()
    if len(parts) < 2 or not parts[-1]:
        raise CorruptFileError(f"{file_name}: the name does not have the ending of a file format", file_name=file_name)
    return parts[-1]


def checked_name(name: str) -> str:
    """Returns the name of a file as metadata gives it, which leads into no other folder. Raises CorruptFileError."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise CorruptFileError(f"{name!r} is no name of a file", file_name=name)
    return name


def snapshot_name(snapshot_id: int) -> str:
    return f"snapshot-{snapshot_id}"


def parse_snapshot_id(name: str) -> int | None:
    """Returns the id in a snapshot file's name; None for hints, temporary files and strays."""
    return _number_after("snapshot-", name)


def schema_name(schema_id: int) -> str:
    return f"schema-{schema_id}"


def parse_schema_id(name: str) -> int | None:
    """Returns the id in a schema file's name; None for anything else."""
    return _number_after("schema-", name)


def changelog_name(snapshot_id: int) -> str:
    return f"changelog-{snapshot_id}"


def parse_changelog_id(name: str) -> int | None:
    """Returns the id of a decoupled changelog's file; None for anything else."""
    return _number_after("changelog-", name)


def tag_name(tag: str) -> str:
    return f"tag-{tag}"


def parse_tag(name: str) -> str | None:
    """Returns the tag that a file in the tag folder holds; None for anything else."""
    return name.removeprefix("tag-") if name.startswith("tag-") and name not in ("tag-", TAG_SUCCESS_DIR) else None


def branch_folder(path: str, branch: str) -> str:
    """Returns the folder of a branch's metadata, of the table at `path`."""
    return f"{path}/{BRANCH_DIR}/branch-{branch}"


def parse_branch(name: str) -> str | None:
    """Returns the branch that a folder in the folder of branches holds; None for anything else."""
    return name.removeprefix("branch-") if name.startswith("branch-") and name != "branch-" else None


def branch_at(path: str, folder: str) -> str | None:
    """Returns the branch of the table at `path` whose metadata folder is `folder`; None when it is no branch's."""
    name = folder.removeprefix(f"{path}/{BRANCH_DIR}/")
    return None if name == folder or "/" in name else parse_branch(name)


def history_of(folder: str) -> tuple[str, str]:
    """Returns the path of the table to which a metadata folder belongs, and the branch's folder below that path; ""
    instead of the branch's folder for the table's own.
    """
    parent, _, name = folder.rpartition("/")
    path = parent.removesuffix(f"/{BRANCH_DIR}")
    if path == parent or parse_branch(name) is None:
        return folder, ""
    return path, f"{BRANCH_DIR}/{name}"


def manifest_name(uuid: str, counter: int) -> str:
    return f"manifest-{uuid}-{counter}"


def manifest_list_name(uuid: str, counter: int) -> str:
    return f"manifest-list-{uuid}-{counter}"


def index_manifest_name(uuid: str, counter: int) -> str:
    return f"index-manifest-{uuid}-{counter}"


def index_file_name(uuid: str, counter: int) -> str:
    return f"index-{uuid}-{counter}"


def temporary_name(target: str, uuid: str) -> str:
    """Returns the name under which a file is written before it is renamed to `target`, in the same folder."""
    return f".{target}.{uuid}.tmp"


def _number_after(prefix: str, name: str) -> int | None:
    digits = name.removeprefix(prefix)
    return int(digits) if digits != name and digits.isascii() and digits.isdigit() else None
