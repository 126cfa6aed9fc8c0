"""Builds and parses the names of all files and folders of a table. Paths are relative to the table's folder.

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
"""A folder inside the folder of tags. Each file in it says that a tag was created."""
BRANCH_DIR = "branch"
CONSUMER_DIR = "consumer"
CHANGELOG_DIR = "changelog"
OWN_DIR = "bucketline"
"""The folder of this library's own files: pins, announced removals, and notes of expiry. Paimon ignores it."""
COMPACTION_DIR = "compaction"
"""The folder of this library's compaction plans, and of the files that say who works on them. Paimon ignores it."""
LATEST = "LATEST"
EARLIEST = "EARLIEST"

POSTPONE_BUCKET = -2

_ESCAPED = {code: f"%{code:02X}" for code in [*range(0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{}[]^")]}
_ESCAPE = re.compile("%([0-9a-fA-F]{2})")
# The characters that Java counts as white space. Unlike Python's str.isspace, it leaves out the no-break spaces.
_SPACES = re.compile(r"[\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000]*")
_COMPRESSIONS = frozenset({"gz", "bz2", "deflate", "snappy", "lz4", "zst"})


def escape(text: str) -> str:
    """Returns the text as part of a folder name: control characters and `"#%'*/:=?\\{}[]^` become %XX."""
    return text.translate(_ESCAPED)


def unescape(text: str) -> str:
    """Reverses `escape`: replaces each %XX by its character. A % that is not followed by two hexadecimal
    digits stays.
    """
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def default_partition_name(schema: TableSchema) -> str:
    """Returns the text that stands for a null, empty or blank partition value in folder names."""
    return schema.settings.paths.default_partition


def is_blank(text: str) -> bool:
    """Returns True if a text is empty or has only white space, as Java defines it. The name of the default partition
    replaces a blank partition value.
    """
    return _SPACES.fullmatch(text) is not None


def partition_values(schema: TableSchema, partition: bytes) -> tuple[tuple[str, str], ...]:
    """Returns pairs of partition column and value as text, not escaped, in the order of the partition columns.
    `partition` is a BinaryRow.

    A null, empty or blank value becomes the name of the default partition. If `partition.legacy-name` is false, Java
    writes a TIMESTAMP_LTZ in the time zone of its JVM; this function uses UTC. Raises UnsupportedTableError for BINARY
    if `partition.legacy-name` is true, because Java's text then differs in each process.
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
    """Returns the folder of a partition, for example `k=v/k2=v2/`; an empty string for a table without partitions."""
    if not schema.partition_keys:
        return ""
    return "".join(f"{escape(key)}={escape(text)}/" for key, text in partition_values(schema, partition))


def bucket_path(schema: TableSchema, partition: bytes, bucket: int) -> str:
    """Returns the folder of a bucket's data files, for example `k=v/bucket-0`. The folder is below the folder in the
    table option `data-file.path-directory`, if that is set.
    """
    directory = schema.settings.paths.data_directory
    return (f"{directory}/" if directory else "") + partition_path(schema, partition) + bucket_dir(bucket)


def index_folder(schema: TableSchema, partition: bytes, bucket: int) -> str:
    """Returns the folder of a bucket's index files. By default, this is one folder for all buckets. If the table's
    options say so, this is the folder of the bucket's data files.
    """
    return bucket_path(schema, partition, bucket) if schema.settings.paths.index_in_data_directory else INDEX_DIR


def new_file_folder(schema: TableSchema, partition: bytes, bucket: int) -> str:
    """Returns the folder for new data files of a bucket, as `bucket_path` does. Raises UnsupportedTableError for a
    partition value for which Paimon's readers do not agree on the folder's name.
    """
    if not schema.settings.paths.legacy_names:
        fields = schema.select(schema.partition_keys)
        for field, value in zip(fields, decode_row(partition, [f.type for f in fields]), strict=True):
            if value is not None and field.type.root is TypeRoot.TIMESTAMP_LTZ:
                cast_text(value, field.type)
    return bucket_path(schema, partition, bucket)


def bucket_dir(bucket: int) -> str:
    """Returns the last part of a bucket's folder: `bucket-0` for bucket 0, and `bucket-postpone` for the postpone
    bucket.
    """
    return "bucket-postpone" if bucket == POSTPONE_BUCKET else f"bucket-{bucket}"


def parse_partition_path(path: str) -> tuple[tuple[str, str], ...]:
    """Returns the partition column and value of each `k=v` part of a path, unescaped. Other parts of the path are
    ignored.
    """
    parts = [part.partition("=") for part in path.split("/") if "=" in part]
    return tuple((unescape(key), unescape(value)) for key, _, value in parts)


def data_file_name(prefix: str, uuid: str, counter: int, extension: str) -> str:
    """Returns the name of a data or changelog file. Each writer has its own `uuid`, and `counter` numbers the writer's
    files from 0.
    """
    return f"{prefix}{uuid}-{counter}.{extension}"


def postpone_prefix(prefix: str, commit_user: str, write_id: int) -> str:
    """Returns the prefix of the names of the files that a writer adds to the postpone bucket. This prefix replaces
    the table's prefix for data files.

    The commit user must not contain `-s-`, because readers find the write id after these characters.
    """
    assert "-s-" not in commit_user and write_id >= 0, (
        f"no name for a postpone file can be made from commit user {commit_user} and write id {write_id}"
    )
    return f"{prefix}-u-{commit_user}-s-{write_id}-w-"


def extension_of(file_name: str) -> str:
    """Returns the file format that the name of a data file ends with: `parquet`, `orc` or `avro`. Raises
    CorruptFileError if the name ends with no file format.

    Source: Paimon 2.0 DataFilePathFactory.formatIdentifier.
    """
    parts = file_name.split(".")
    if len(parts) > 2 and parts[-1] in _COMPRESSIONS:
        parts.pop()
    if len(parts) < 2 or not parts[-1]:
        raise CorruptFileError(
            f"{file_name}: the name does not end with a file format (parquet, orc, avro)", file_name=file_name
        )
    return parts[-1]


def checked_name(name: str) -> str:
    """Returns a file name from metadata unchanged. Raises CorruptFileError if the name is a path into
    another folder.
    """
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise CorruptFileError(f"metadata names the file {name!r}, which is no plain file name", file_name=name)
    return name


def snapshot_name(snapshot_id: int) -> str:
    return f"snapshot-{snapshot_id}"


def parse_snapshot_id(name: str) -> int | None:
    """Returns the id in the name of a snapshot file; None for the hint files LATEST and EARLIEST, temporary files and
    any other name.
    """
    return _number_after("snapshot-", name)


def schema_name(schema_id: int) -> str:
    return f"schema-{schema_id}"


def parse_schema_id(name: str) -> int | None:
    """Returns the id in a schema file's name; None for anything else."""
    return _number_after("schema-", name)


def changelog_name(snapshot_id: int) -> str:
    return f"changelog-{snapshot_id}"


def parse_changelog_id(name: str) -> int | None:
    """Returns the id in the name of a changelog file, which outlives its snapshot; None for anything else."""
    return _number_after("changelog-", name)


def tag_name(tag: str) -> str:
    return f"tag-{tag}"


def parse_tag(name: str) -> str | None:
    """Returns the name of the tag, given the name of its file in the tag folder; None for any other file."""
    return name.removeprefix("tag-") if name.startswith("tag-") and name not in ("tag-", TAG_SUCCESS_DIR) else None


def branch_folder(path: str, branch: str) -> str:
    """Returns the folder with the metadata of a branch of the table at `path`."""
    return f"{path}/{BRANCH_DIR}/branch-{branch}"


def parse_branch(name: str) -> str | None:
    """Returns the name of the branch, given the name of its folder in the folder of branches; None for any other
    folder.
    """
    return name.removeprefix("branch-") if name.startswith("branch-") and name != "branch-" else None


def branch_at(path: str, folder: str) -> str | None:
    """Returns the name of the branch whose metadata is in `folder`; None if `folder` is no branch of the table at
    `path`.
    """
    name = folder.removeprefix(f"{path}/{BRANCH_DIR}/")
    return None if name == folder or "/" in name else parse_branch(name)


def history_of(folder: str) -> tuple[str, str]:
    """Splits the path of a metadata folder into the path of the table and, relative to that path, the folder of the
    branch. For the table's own metadata folder, the second part is "".
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
    """Returns the name of a temporary file in the folder of `target`. A file is first written under this name, and then
    renamed to `target`.
    """
    return f".{target}.{uuid}.tmp"


def _number_after(prefix: str, name: str) -> int | None:
    digits = name.removeprefix(prefix)
    return int(digits) if digits != name and digits.isascii() and digits.isdigit() else None
