"""Skips files whose own index shows that they do not have the values that the filter asks for.

An index is in the manifest entry of its data file, or in a file next to it. `prune` decides which files of a bucket may
be skipped without changing the result.

Source: Paimon 2.0 FileIndexEvaluator, FileIndexPredicate; Paimon does not use the index of a file that is merged with
other files.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.wording import counted
from bucketline.state.errors import CorruptFileError
from bucketline.state.format.data_file import DataFileMeta
from bucketline.state.format.index.bloom_filter import BLOOM_FILTER, bloom_hashes, may_hold
from bucketline.state.format.index.file_index import (
    HEAD_START_BYTES,
    INDEX_SUFFIX,
    StoredIndex,
    decode_head,
    head_bytes,
)
from bucketline.state.store.read.file_access import FileAccess
from bucketline.state.store.read.prune import BucketFiles, keeps_file
from bucketline.state.store.storage.decoding import naming_file
from bucketline.state.store.storage.parallel import all_at_once, answers_late

_Read = Callable[[int, int], bytes]
"""A function that takes a position and a number of bytes, and returns these bytes of an index."""


def narrowed_by_index(
    access: FileAccess, bucket: BucketFiles, expression: pc.Expression | None, *, opens_files: bool = True
) -> BucketFiles:
    """Returns the bucket without the files whose index shows that none of their rows meets the filter. The result may
    have no files. Without `opens_files`, only indexes in manifests are used, and no index file is opened. Raises
    CorruptFileError for an index that cannot be read.
    """
    schema = access.schema
    if expression is None or not any(_index_names(f) or f.embedded_index is not None for f in bucket.files):
        return bucket
    if schema.settings.reading.data_evolution or not schema.settings.reading.uses_indexes:
        return bucket
    wanted = access.wanted.of(schema, expression)
    if not wanted:
        return bucket
    looks = [partial(_lacking, access, bucket, f, wanted, opens_files) for f in bucket.files]
    lacking = dict(zip((f.file_name for f in bucket.files), all_at_once(access.io, looks), strict=True))
    keys = {f.id for f in schema.select(schema.trimmed_primary_key)}
    by_values = {name for name, columns in lacking.items() if not columns}
    # A file that does not have a wanted key holds no version of a wanted row, whatever the other files hold.
    by_keys = {name for name, columns in lacking.items() if not columns & keys}
    kept = [f for f in bucket.files if keeps_file(schema, bucket.files, f, by_values, by_keys)]
    return bucket if len(kept) == len(bucket.files) else bucket.with_files(kept)


def indexed_names(access: FileAccess, bucket: BucketFiles, file: DataFileMeta) -> frozenset[str]:
    """Returns the columns for which the index of a file has a bloom filter. Raises CorruptFileError."""
    if file.embedded_index is None and not _index_names(file):
        return frozenset()
    with _index_of(access, bucket, file) as (_, parts):
        return frozenset(part.column for part in parts if part.kind == BLOOM_FILTER)


def _lacking(
    access: FileAccess, bucket: BucketFiles, file: DataFileMeta, wanted: Mapping[int, pa.Array], opens_files: bool
) -> frozenset[int]:
    """Returns the ids of the columns that have none of their wanted values in the file, as its index shows. `wanted`
    maps the ids of columns to wanted values.
    """
    if file.embedded_index is None and not (opens_files and _index_names(file)):
        return frozenset()
    current = {f.id: f for f in access.schema.fields}
    lacking = set()
    with _index_of(access, bucket, file) as (read, parts):
        for field in access.schema_of(file.schema_id).fields:
            values = wanted.get(field.id)
            if values is None or field.type.as_nullable() != current[field.id].type.as_nullable():
                continue
            part = next((p for p in parts if (p.column, p.kind) == (field.name, BLOOM_FILTER)), None)
            if part is None:
                continue
            if not part.length or not may_hold(read(part.start, part.length), bloom_hashes(values, field.type)).any():
                lacking.add(field.id)
    return frozenset(lacking)


def _index_names(file: DataFileMeta) -> list[str]:
    return [name for name in file.extra_files if name.endswith(INDEX_SUFFIX)]


@contextmanager
def _index_of(
    access: FileAccess, bucket: BucketFiles, file: DataFileMeta
) -> Iterator[tuple[_Read, Sequence[StoredIndex]]]:
    """Gives the `with` block a function that reads bytes of a file's index, and the list of the index's parts."""
    if file.embedded_index is not None:
        with naming_file(file.file_name):
            yield _reader_of(file.embedded_index), decode_head(file.embedded_index)
        return
    io, data_path = access.place(bucket, file)
    path = f"{data_path.rpartition('/')[0]}/{_index_names(file)[0]}"
    if answers_late(io):
        # One request for the whole index is cheaper than one request for each part.
        whole = io.read(path)
        with naming_file(path):
            yield _reader_of(whole), decode_head(whole)
        return
    with naming_file(path), io.open_input(path) as source:

        def read(start: int, length: int) -> bytes:
            source.seek(start)
            found = source.read(length)
            return _whole(found, start, length)

        start = read(0, HEAD_START_BYTES)
        yield read, decode_head(read(0, head_bytes(start)))


def _reader_of(index: bytes) -> _Read:
    return lambda start, length: _whole(index[start : start + length], start, length)


def _whole(found: bytes, start: int, length: int) -> bytes:
    if len(found) < length:
        raise CorruptFileError(
            f"a file index ends too early, after {counted(start + len(found), 'byte')}", offset=start + len(found)
        )
    return found
