"""The sealed run that one task sends to another task after a flush. The run holds the rows of all groups (buckets or
shares) that the other task owns, and the position of each group. The rows of one group in one run are called a piece.

The rows are ordered by partition and group. Inside a group the rows are in the order in which a run of this group alone
would have them. The run is an Arrow IPC file, so that a group can be read without reading what comes before it. Small
neighbouring groups share a record batch; a large group has record batches of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bucketline.state.store.write.sealed_runs import RunForm, SealedRun

SHARED_BYTES = 128 << 10
"""The size, in bytes, of a record batch that several groups share. The task that reads the groups holds one such batch
in memory for each sealed run.
"""

PIECES = pa.schema(
    [
        ("partition", pa.binary()),
        ("group", pa.int32()),
        ("consumed_rows", pa.int64()),
        ("rank_end", pa.int64()),
        ("row_count", pa.int64()),
        ("row_bytes", pa.int64()),
        ("batch", pa.int32()),
        ("first_row", pa.int32()),
        ("is_alone", pa.bool_()),
        ("feeds", pa.binary()),
    ]
)
"""The columns that describe the pieces of a sealed run, one row for each piece. They are the members of a `SealedRun`
and four more: `row_bytes`, the size of the piece's rows, estimated by the average row; `batch` and `first_row`, the
record batch in which the piece begins, and its first row in this batch; `is_alone`, whether no other piece has rows in
the piece's record batches.
"""


@dataclass(frozen=True, slots=True)
class OwnerRun:
    """A sealed run (sorted, packed rows) that the task `origin` sends to the task `owner`. A task seals the rows in its
    memory several times (each time is a flush), and `flush` is the number of earlier flushes. `pieces` describes the
    rows of each bucket or group of keys in the run. `table` is the index of the rows' table among the tables of a job.
    """

    owner: int
    origin: int
    flush: int
    pieces: pa.RecordBatch
    blob: bytes | pa.Buffer
    table: int = 0

    @property
    def consumed_rows(self) -> int:
        """Returns the number of accepted rows, including rows that were folded into other rows."""
        return sum(self.pieces["consumed_rows"].to_pylist())

    @property
    def row_count(self) -> int:
        return sum(self.pieces["row_count"].to_pylist())

    def runs(self) -> Iterator[tuple[SealedRun, "RunPlace"]]:
        """Yields for each piece of this object (the rows of one bucket, or of one group of keys) a `SealedRun` that
        holds no rows, and the place in this object's `blob` where the rows of the piece are.
        """
        columns = (self.pieces.column(name).to_pylist() for name in PIECES.names)
        before = 0
        for partition, group, consumed, rank_end, count, size, *at, feeds in zip(*columns, strict=True):
            run = SealedRun(partition, group, self.origin, self.flush, consumed, rank_end, count, b"", group, feeds)
            batch, first_row, is_alone = at
            yield run, RunPlace(batch, first_row, count, is_alone, size, before)
            before += count


@dataclass(frozen=True, slots=True)
class RunPlace:
    """The position of a piece in a sealed run (sorted, packed rows). A piece is all rows of one bucket, or of one group
    of keys, in the run.

    - The rows of the piece begin at the row `first_row` of the record batch `batch`, and may go on in the next batches.
    - `is_alone` is True if no other piece has rows in these batches.
    - `row_bytes` is the size of the piece's rows in bytes, estimated by the average row.
    - `rows_before` is the number of rows of the sealed run before the piece.
    """

    batch: int
    first_row: int
    row_count: int
    is_alone: bool
    row_bytes: int = 0
    rows_before: int = 0


@dataclass(frozen=True, slots=True)
class RunPart:
    """A number of rows of one group (a bucket or a group of keys) that go into the same sealed run (sorted, packed
    rows). `begins` is True if these rows are the first rows of the group.
    """

    group: int
    row_count: int
    begins: bool


def parts_of_runs(groups: Sequence[tuple[int, int]], rows_each: int) -> Iterator[list[RunPart]]:
    """Divides the rows of groups (the rows of one bucket, or of the keys that one task owns) into sealed runs of at
    most `rows_each` rows. Yields the content of each sealed run, as a list of parts: which group, and how many of its
    rows. `groups` has the number and the row count of each group, in order. Groups without rows are left out.
    """
    parts: list[RunPart] = []
    room = rows_each
    for group, count in groups:
        left = count
        while left:
            taken = min(left, room)
            parts.append(RunPart(group, taken, left == count))
            left, room = left - taken, room - taken
            if not room:
                yield parts
                parts, room = [], rows_each
    if parts:
        yield parts


def batches_of(row_counts: Sequence[int], shared_rows: int, batch_rows: int) -> tuple[list[int], list[RunPlace]]:
    """Decides how the pieces of a sealed run (sorted, packed rows) are divided into record batches. A piece holds the
    run's rows of one bucket or share. Returns the number of rows of each record batch, and the position of each piece
    (`RunPlace`).

    `row_counts` are the row counts of the pieces. Pieces of fewer than `shared_rows` rows share record batches; a
    larger piece gets its own record batches, with `batch_rows` rows each.
    """
    batches: list[int] = []
    places: list[RunPlace] = []
    room = 0
    for count in row_counts:
        if count >= shared_rows:
            places.append(RunPlace(len(batches), 0, count, True))
            batches += [min(batch_rows, count - at) for at in range(0, count, batch_rows)]
            room = 0
            continue
        if count > room:
            batches.append(0)
            room = shared_rows
        places.append(RunPlace(len(batches) - 1, batches[-1], count, False))
        batches[-1] += count
        room -= count
    return batches, places


def sealed_batches(rows: pa.Table, batch_sizes: Sequence[int], form: RunForm) -> bytes | pa.Buffer:
    """Returns the rows as an Arrow IPC file with record batches of the given sizes (in rows); compressed if `form` is
    PACKED.
    """
    if form is RunForm.PACKED:
        sink = pa.BufferOutputStream()
        _write_file(rows, batch_sizes, sink, "lz4")
        packed: bytes = sink.getvalue().to_pybytes()
        return packed
    measured = pa.MockOutputStream()
    _write_file(rows, batch_sizes, measured, None)
    plain = pa.allocate_buffer(measured.size())
    _write_file(rows, batch_sizes, pa.FixedSizeBufferWriter(plain), None)
    return plain


def _write_file(rows: pa.Table, batch_sizes: Sequence[int], sink: pa.NativeFile, compression: str | None) -> None:
    (whole,) = rows.combine_chunks().to_batches()
    # Compressing small buffers here costs less than passing them to other threads.
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_file(sink, rows.schema, options=options) as writer:
        first = 0
        for count in batch_sizes:
            writer.write_batch(whole.slice(first, count))
            first += count
    assert first == rows.num_rows, "all rows are in some batch"


def opened(blob: pa.Buffer | pa.NativeFile) -> pa.RecordBatchFileReader:
    """Returns a reader of the record batches of a sealed run (sorted, packed rows), given the bytes of the run. Each
    batch is decompressed when it is read.
    """
    return pa.ipc.open_file(blob, options=pa.ipc.IpcReadOptions(use_threads=False))


def cut(reader: pa.RecordBatchFileReader, place: RunPlace) -> Iterator[pa.RecordBatch]:
    """Yields the rows of one piece of a sealed run. A piece holds the run's rows of one bucket or share, and `place`
    says which record batches and rows belong to the piece.
    """
    number, at, left = place.batch, place.first_row, place.row_count
    while left:
        piece = reader.get_batch(number).slice(at, left)
        number, at, left = number + 1, 0, left - piece.num_rows
        yield piece


def stretches(places: Sequence[RunPlace]) -> Iterator[RunPlace]:
    """Takes positions of rows in a sealed run (sorted, packed rows), and yields them in order. Positions that directly
    follow each other are joined into one position, so that their rows are read together.
    """
    stretch: RunPlace | None = None
    for place in places:
        if stretch is not None and stretch.rows_before + stretch.row_count == place.rows_before:
            stretch = replace(stretch, row_count=stretch.row_count + place.row_count)
            continue
        if stretch is not None:
            yield stretch
        stretch = place
    if stretch is not None:
        yield stretch


def packed_again(blob: pa.Buffer) -> bytes:
    """Takes an uncompressed sealed run (sorted rows, packed for a task that writes buckets), and returns the run with
    the same record batches, compressed.
    """
    reader = opened(blob)
    batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
    packed = sealed_batches(pa.Table.from_batches(batches), [b.num_rows for b in batches], RunForm.PACKED)
    assert isinstance(packed, bytes)
    return packed


def pieces_bytes(pieces: pa.RecordBatch) -> bytes:
    """Turns a description of pieces into bytes, which `read_pieces` reads. A piece is the part of a sealed run that
    goes to one bucket; the description has one row for each piece.
    """
    data: bytes = pieces.serialize().to_pybytes()
    return data


def read_pieces(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """Decodes bytes that `pieces_bytes` has made. Returns a record batch with a row for each piece of a sealed run (a
    piece holds the rows of one group), with the columns PIECES.
    """
    return pa.ipc.read_record_batch(pa.py_buffer(data), PIECES)


def pieces_of(rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    """Returns the description of the pieces of a sealed run as a record batch. (A piece holds the rows of one bucket
    or share.) Each tuple in `rows` describes one piece, with its values in the order of the columns PIECES.
    """
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, PIECES, strict=True)], schema=PIECES
    )
