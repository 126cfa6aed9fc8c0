"""RocksDB for the key index: options that limit its memory, files of sorted entries, and its errors.

Source: RocksDB wiki, "Memory usage in RocksDB", "Creating and Ingesting SST files".
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    DBCompactionStyle,
    DBCompressionType,
    IngestExternalFileOptions,
    Options,
    Rdict,
    SstFileWriter,
)

from bucketline.conf.errors import BucketlineError
from bucketline.state.errors import IndexFault, IndexStateError
from bucketline.state.store.storage.errors import disk_error, storage_error

MB = 1 << 20


_BLOCK_BYTES = 4096
_BLOOM_BITS_PER_KEY = 10


@dataclass(frozen=True, slots=True)
class RocksSettings:
    """The memory limit of one open database. `memory_bytes` is for blocks, block indexes, filters and write buffers
    together.
    """

    memory_bytes: int = 256 * MB
    max_open_files: int = 256

    @property
    def cache_bytes(self) -> int:
        return self.memory_bytes * 3 // 4

    @property
    def write_buffer_bytes(self) -> int:
        return self.memory_bytes // 8


def rocks_options(settings: RocksSettings) -> Options:
    """Returns the options for a database of small values. The database is written by ingesting files, and read by point
    lookups.
    """
    blocks = BlockBasedOptions()
    blocks.set_block_cache(Cache(settings.cache_bytes))
    # Block indexes and filters outside the cache would grow with the number of keys.
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)
    # Filters are split, because a filter of megabytes would not fit into its share of the cache, and would be read
    # again for every few keys.
    blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
    blocks.set_partition_filters(True)
    blocks.set_metadata_block_size(_BLOCK_BYTES)
    blocks.set_pin_top_level_index_and_filter(True)
    blocks.set_block_size(_BLOCK_BYTES)
    blocks.set_format_version(5)
    options = Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_block_based_table_factory(blocks)
    options.set_max_open_files(settings.max_open_files)
    options.set_db_write_buffer_size(settings.write_buffer_bytes)
    options.set_write_buffer_size(max(MB, settings.write_buffer_bytes // 2))
    # Lookups without compression cost half as much, and RocksDB stores the common beginning of neighbouring keys only
    # once anyway.
    options.set_compression_type(DBCompressionType.none())
    # Each batch adds a sorted run. Merging runs of similar size rewrites a key few times, whatever the size of the
    # index.
    options.set_compaction_style(DBCompactionStyle.universal())
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(MB)
    options.set_max_manifest_file_size(MB)
    options.set_stats_dump_period_sec(0)
    # The operating system's read-ahead makes the first lookups after a start faster.
    options.set_advise_random_on_open(False)
    return options


@contextmanager
def rocks_errors(directory: str) -> Iterator[None]:
    """Turns RocksDB's errors in the `with` block into BucketlineErrors. An error of a disk becomes StorageError. All
    other errors become IndexStateError, whose attribute `fault` says what is wrong with the index.

    rocksdict raises bare exceptions, which differ only in their messages.
    """
    try:
        yield
    except BucketlineError:
        raise
    except Exception as e:
        raise _explained(e, directory) from e


def write_sst(path: str, options: Options, chunks: Iterable[tuple[Sequence[bytes], Sequence[bytes] | None]]) -> int:
    """Writes a file of entries, chunk by chunk. Keys must be strictly ascending. A chunk without values deletes its
    keys.

    Returns the number of entries. If there are no entries, no file is written.
    """
    writer = SstFileWriter(options)
    count = 0
    for keys, values in chunks:
        if not keys:
            continue
        if not count:
            writer.open(path)
        count += len(keys)
        # RocksDB takes one entry at a time. A loop outside Python takes a quarter less time.
        calls = map(writer.__delitem__, keys) if values is None else map(writer.__setitem__, keys, values)
        deque(calls, maxlen=0)
    if count:
        writer.finish()
    return count


def ingest(database: Rdict, paths: list[str]) -> None:
    """Adds files of sorted entries to a RocksDB database: all entries or none. RocksDB moves the files into its own
    folder.
    """
    how = IngestExternalFileOptions()
    how.set_move_files(True)
    database.ingest_external_file(paths, how)


def _explained(error: Exception, directory: str) -> BucketlineError:
    text = str(error)
    lowered = text.lower()
    if "lock" in lowered and ("unavailable" in lowered or "no locks" in lowered or "lock hold" in lowered):
        return IndexStateError(
            f"{directory}: the key index is open in another process: {text}", fault=IndexFault.LOCKED, path=directory
        )
    of_disk = disk_error(error)
    if of_disk is not None:
        remedy = f"; or let 'local-directory' name another disk: {text}"
        return storage_error(directory, of_disk, remedy=remedy, retryable=False)
    if "does not exist" in lowered and "create_if_missing" in lowered:
        return IndexStateError(f"{directory}: there is no key index", fault=IndexFault.MISSING, path=directory)
    return IndexStateError(
        f"{directory}: the key index cannot be read: {text}", fault=IndexFault.DAMAGED, path=directory
    )
