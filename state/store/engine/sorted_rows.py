"""Sorts rows by a sort key in bounded memory: writes sorted chunks to local disk, and merges them block by block."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.state.store.write.run_buffer import SpillFile
from bucketline.state.types.buffers import one_array
from bucketline.state.types.curves import OrderStrategy, sort_key

_KEY = "_sort_key_"
_BATCH_ROWS = 65536
_CHUNK_SHARE = 6
"""The memory is divided by this number to get the size of a chunk, because the chunk, its sort key, the indices of the
order and the sorted copies are in memory at the same time.
"""
_SMALLEST_BLOCK, _LARGEST_BLOCK = 64 << 10, 4 << 20
_BLOCKS_A_BUDGET = 256


@dataclass(frozen=True, slots=True)
class RowSort:
    """How rows are sorted: by which columns, in which order, and with how many bytes of memory for Arrow data. If the
    rows need more memory, they are sorted in parts, which are stored in files in `directory`.
    """

    columns: tuple[str, ...]
    strategy: OrderStrategy
    memory_bytes: int
    directory: str | None = None

    def sorted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields the rows of all batches in order. All batches must have the same schema."""
        chunks = self._chunks(batches)
        first, second = next(chunks, None), next(chunks, None)
        if second is None:
            yield from () if first is None else _batches(first)
            return
        assert first is not None
        runs: list[_Run] = []
        with SpillFile(self.directory) as spill:
            for chunk in (first, second):
                runs.append(self._spilled(spill, _blocks(chunk, self._block_bytes)))
            del first, second, chunk
            for chunk in chunks:
                runs.append(self._spilled(spill, _blocks(chunk, self._block_bytes)))
            while len(runs) > self._fan_in:
                merged = _merged([_spilled_blocks(spill, run) for run in runs[: self._fan_in]])
                runs = [*runs[self._fan_in :], self._spilled(spill, merged)]
            for merged_rows in _merged([_spilled_blocks(spill, run) for run in runs]):
                yield from _batches(merged_rows)

    @property
    def _block_bytes(self) -> int:
        return min(_LARGEST_BLOCK, max(_SMALLEST_BLOCK, self.memory_bytes // _BLOCKS_A_BUDGET))

    @property
    def _fan_in(self) -> int:
        return max(2, self.memory_bytes // (4 * self._block_bytes))

    def _chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Divides the input rows into chunks that fit in memory, sorts each chunk, and yields the chunks with their
        sort keys.
        """
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            # A slice of a large batch counts with the size of its own rows only.
            held.append(batch)
            size += batch.get_total_buffer_size() if batch.num_rows > _BATCH_ROWS else batch.nbytes
            if size >= self.memory_bytes // _CHUNK_SHARE:
                yield self._sorted_chunk(held)
                held, size = [], 0
        if held:
            yield self._sorted_chunk(held)

    def _sorted_chunk(self, held: Sequence[pa.RecordBatch]) -> pa.Table:
        rows = pa.Table.from_batches(held)
        key = key_of(rows, self)
        for name in key.column_names:
            rows = rows.append_column(f"{_KEY}{name}", key[name])
        return _in_order(rows)

    def _spilled(self, spill: SpillFile, blocks: Iterable[pa.Table]) -> "_Run":
        start = spill.tell()
        writer = None
        for block in blocks:
            if writer is None:
                options = pa.ipc.IpcWriteOptions(compression="lz4")
                writer = pa.ipc.new_stream(spill, block.schema, options=options)
            writer.write_table(block)
        assert writer is not None, "a run has rows"
        writer.close()
        return _Run(start, spill.tell() - start)


def key_of(rows: pa.Table, by: RowSort) -> pa.Table:
    """Returns the sort key of rows."""
    return sort_key([one_array(rows[name]) for name in by.columns], by.strategy)


@dataclass(frozen=True, slots=True)
class _Run:
    """The position and the size of a sorted run in the spill file."""

    offset: int
    size: int


def _spilled_blocks(spill: SpillFile, run: _Run) -> Iterator[pa.Table]:
    """Yields the blocks of a sorted run. One block is in memory at a time."""
    for batch in pa.ipc.open_stream(spill.blob(run.offset, run.size)):
        yield pa.Table.from_batches([batch])


def _merged(runs: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Merges sorted runs, and yields their rows in order. One block of each run is in memory. Each step compares the
    last rows of these blocks, and takes the lowest of them as a limit. All rows up to the limit are in memory then;
    they are sorted together and yielded.
    """
    heads = [(block, run) for run in runs if (block := next(run, None)) is not None]
    while heads:
        ends = pa.concat_tables([block.slice(block.num_rows - 1) for block, _ in heads])
        cut = _in_order(ends.select(_keys(ends))).slice(0, 1)
        complete, left = [], []
        for block, run in heads:
            count = _count_up_to(block, cut)
            complete.append(block.slice(0, count))
            rest: pa.Table | None = block.slice(count) if count < block.num_rows else next(run, None)
            if rest is not None:
                left.append((rest, run))
        heads = left
        yield _in_order(pa.concat_tables(complete))


def _count_up_to(block: pa.Table, cut: pa.Table) -> int:
    """Returns how many rows of a sorted block are not greater than the row `cut`."""
    low, high = 0, block.num_rows
    names = _keys(block)
    wanted = tuple(cut[name][0].as_py() for name in names)
    while low < high:
        middle = (low + high) // 2
        if tuple(block[name][middle].as_py() for name in names) <= wanted:
            low = middle + 1
        else:
            high = middle
    return low


def _in_order(rows: pa.Table) -> pa.Table:
    names = _keys(rows)
    return rows.take(pc.sort_indices(rows.select(names), sort_keys=[(name, "ascending") for name in names]))


def _keys(rows: pa.Table) -> list[str]:
    return [name for name in rows.column_names if name.startswith(_KEY)]


def _blocks(rows: pa.Table, block_bytes: int) -> Iterator[pa.Table]:
    """Divides the rows into blocks of about `block_bytes` bytes, with at least one row each, and yields the blocks in
    order.
    """
    step = max(1, int(np.ceil(rows.num_rows * block_bytes / max(1, rows.nbytes))))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step).combine_chunks()


def _batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yields the rows without their sort keys."""
    shown = rows.select([name for name in rows.column_names if not name.startswith(_KEY)])
    yield from shown.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS)
