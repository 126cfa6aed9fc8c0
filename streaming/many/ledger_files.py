"""The ledgers (states of the job's tables), pins (settings of a batch) and requests of a job, as files in its
checkpoint. Also chooses the ledger that a batch continues.

The ledger of a batch is stored before Spark is told that the batch is done. So every batch that Spark counts as done
has a ledger.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bucketline.conf.errors import BucketlineError, OptionError
from bucketline.conf.job import CHECKPOINT
from bucketline.state.determinism import SYSTEM_WORLD, World
from bucketline.state.errors import CorruptFileError, UnsupportedTableError
from bucketline.state.store.storage.file_io import FileIO, file_io_for
from bucketline.streaming.batch.recover import CheckpointMismatchError
from bucketline.streaming.many.ledger import Ledger, decode_ledger

_OURS = "bucketline"
_START = "start"
_REMEDY = (
    "Restore the whole checkpoint as it was; or, with a Kafka source, run the job once with --reset-identity, which "
    "begins at the offsets of the tables"
)


@dataclass(frozen=True, slots=True)
class BatchPin:
    """The settings with which a batch is written, stored before the first commit of the batch: the settings that affect
    rows, without secrets, and their hash; and the tables that the batch writes, each with the number of its route.
    """

    batch: int
    digest: str | None
    hash: str
    settings: str
    tables: Mapping[str, int]

    def encode(self) -> bytes:
        said = {
            "format": 1,
            "batch": self.batch,
            "digest": self.digest,
            "hash": self.hash,
            "settings": self.settings,
            "tables": dict(self.tables),
        }
        return json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()


def decode_pin(data: bytes, path: str) -> BatchPin:
    """Decodes a pin file, and returns the settings with which a batch is written. Raises CorruptFileError if the file
    is not a complete pin.
    """
    try:
        said: Mapping[str, Any] = json.loads(data)
        return BatchPin(said["batch"], said["digest"], said["hash"], said["settings"], dict(said["tables"]))
    except (ValueError, KeyError, TypeError) as e:
        raise CorruptFileError(f"{path} is not a pin of a batch, or is cut short. {_REMEDY}", path=path) from e


class Wish(Enum):
    """What a user asks a running job to do with one of its tables. UNPARK: the table was parked (left out of batches),
    and the job writes it again. FORGET: the job removes the table from its ledger (the stored state of its tables), and
    treats the table's next records like records of a new table.
    """

    UNPARK = "unpark"
    FORGET = "forget"


@dataclass(frozen=True, slots=True)
class TableRequest:
    """A request about a table. The request is a file in the checkpoint until the job has carried it out."""

    wish: Wish
    table: str

    @property
    def name(self) -> str:
        return hashlib.sha256(f"{self.wish.value} {self.table}".encode()).hexdigest()[:32]

    def encode(self) -> bytes:
        return json.dumps({"wish": self.wish.value, "table": self.table}, ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class LedgerFiles:
    """The files of a job of many tables in its checkpoint:

    - ledgers: the state of all tables after each batch. `kept` is the number of ledgers to keep: as many as the batches
      whose offsets Spark keeps.
    - pins: the settings with which a batch is written.
    - requests about a table, which the job has not carried out yet.
    """

    io: FileIO
    root: str
    kept: int = 100
    world: World = SYSTEM_WORLD

    def numbers(self) -> list[int]:
        """Returns the numbers of the batches that have a ledger, in ascending order."""
        return sorted(int(name) for name in self.io.list_names(f"{self.root}/ledger") if name.isdigit())

    def read(self, batch: int) -> Ledger | None:
        """Returns the ledger (the stored states of all tables) of a batch; None if the batch has no ledger file."""
        path = self._ledger(batch)
        data = self.io.read_optional(path)
        return None if data is None else decode_ledger(data, path)

    def read_start(self) -> Ledger | None:
        """Returns the ledger (the stored state of the tables) with which the query began; None if it began without a
        ledger.
        """
        path = f"{self.root}/ledger/{_START}"
        data = self.io.read_optional(path)
        return None if data is None else decode_ledger(data, path)

    def put_start(self, ledger: Ledger) -> None:
        """Writes the ledger with which a new query begins."""
        self.io.overwrite(f"{self.root}/ledger/{_START}", ledger.encode())

    def written_ms(self, batch: int) -> int:
        """Returns the time at which the ledger of a batch was written, in milliseconds since 1970."""
        return self.io.modified_ms(self._ledger(batch))

    def put(self, ledger: Ledger) -> None:
        """Writes the ledger of a batch. If the batch already has a ledger with the same input, that ledger stays
        unchanged.

        Raises CheckpointMismatchError if the batch has a ledger with other input, or a ledger of another query.
        """
        if self.io.publish(self._ledger(ledger.batch), ledger.encode()):
            return
        there = self.read(ledger.batch)
        if there is None or (there.query, there.digest) != (ledger.query, ledger.digest):
            raise CheckpointMismatchError(
                f"the ledger {self._ledger(ledger.batch)} was written by a batch with other input than batch "
                f"{ledger.batch} of this job: a second job uses the checkpoint, or the checkpoint was rewound. Stop "
                f"the second job, if there is one. {_REMEDY}",
                path=self.root,
                checkpoint_batch=ledger.batch,
            )

    def replace(self, ledger: Ledger) -> None:
        """Stores a ledger (states of the job's tables after a batch). If the batch has a ledger already, it is
        replaced.
        """
        self.io.overwrite(self._ledger(ledger.batch), ledger.encode())

    def prune(self, batch: int) -> None:
        """Removes the ledger (states of the job's tables) and the pin (settings of a batch) of the batch `kept` batches
        before `batch`. Called when `batch` has a ledger, because the old files are not needed any more then.
        """
        for folder in ("ledger", "pins") if batch >= self.kept else ():
            self.io.delete(f"{self.root}/{folder}/{batch - self.kept}")

    def read_pin(self, batch: int) -> BatchPin | None:
        path = f"{self.root}/pins/{batch}"
        data = self.io.read_optional(path)
        return None if data is None else decode_pin(data, path)

    def put_pin(self, pin: BatchPin) -> None:
        """Writes the pin of a batch (a file with the settings with which the batch is written). A pin that the batch
        already has is overwritten. If the old pin must be kept, the caller looks for it first and does not call this
        function.
        """
        self.io.overwrite(f"{self.root}/pins/{pin.batch}", pin.encode())

    def requests(self) -> tuple[TableRequest, ...]:
        """Returns the requests that users have made to the job, for example to write a parked table again. Raises
        CorruptFileError if a file in the folder of requests is not a request.
        """
        found = []
        for name in self.io.list_names(f"{self.root}/requests"):
            path = f"{self.root}/requests/{name}"
            data = self.io.read_optional(path)
            try:
                said = {} if data is None else json.loads(data)
                found += [TableRequest(Wish(said["wish"]), said["table"])] if said else []
            except (ValueError, KeyError, TypeError) as e:
                raise CorruptFileError(f"{path} is not a request to a job; remove it", path=path) from e
        return tuple(found)

    def ask(self, request: TableRequest) -> None:
        """Stores a request, which the job carries out with its next batch."""
        self.io.overwrite(f"{self.root}/requests/{request.name}", request.encode())

    def done(self, requests: Iterable[TableRequest]) -> None:
        """Removes the files of requests that the job has carried out."""
        for request in requests:
            self.io.delete(f"{self.root}/requests/{request.name}")

    def _ledger(self, batch: int) -> str:
        return f"{self.root}/ledger/{batch}"


def ledger_files(
    checkpoint: str, storage: Mapping[str, str], kept: int = 100, world: World = SYSTEM_WORLD
) -> LedgerFiles:
    """Returns the object that reads and writes ledgers (the stored state of a job's tables) in the folder of a
    checkpoint. The newest `kept` ledgers are kept. Raises OptionError if bucketline cannot reach the storage of the
    checkpoint, or cannot write there.
    """
    try:
        io, root = file_io_for(checkpoint, storage, world)
        io.require_publish()
    except (OptionError, UnsupportedTableError) as e:
        raise OptionError(
            f"a job with 'tables' keeps a ledger in its checkpoint, but cannot write the ledger to {checkpoint}: "
            f"{e.message} Use a checkpoint on a storage that can hold tables",
            key=CHECKPOINT.key,
        ) from e
    return LedgerFiles(io, f"{root}/{_OURS}", kept, world)


@dataclass(frozen=True, slots=True)
class Found:
    """The ledger (the state of all tables) with which a batch begins; None if the job has no ledger yet. `is_done` is
    true if this is already the ledger of the batch itself. Then an earlier attempt has completed the batch.
    """

    ledger: Ledger | None
    is_done: bool = False


def find_ledger(files: LedgerFiles, query: str, batch: int, digest: str | None) -> Found:
    """Returns the ledger of the previous batch, or the ledger of `batch` itself if that batch was done already.
    `digest` is the hash of the batch's input.

    Raises CheckpointMismatchError if the ledgers and Spark's own files in the checkpoint do not agree.
    """
    numbers = files.numbers()
    newest = numbers[-1] if numbers else None
    if newest is None:
        return Found(files.read_start() if batch == 0 else None)
    ledger = files.read(newest)
    if ledger is None:
        raise CorruptFileError(f"{files.root}/ledger/{newest} is listed but does not exist. {_REMEDY}", path=files.root)
    why: str | None = None
    if ledger.query != query:
        why = f"the ledger belongs to query {ledger.query}, but this is query {query}"
    elif newest == batch and ledger.digest != digest:
        why = f"the ledger has batch {batch} with other input"
    elif newest not in (batch, batch - 1):
        why = f"the ledger is at batch {newest}, but the checkpoint is at batch {batch}"
    if why is not None:
        raise CheckpointMismatchError(
            f"the ledger in {files.root} does not fit the checkpoint: {why}. The checkpoint was rewound, copied or "
            f"restored in part. {_REMEDY}",
            path=files.root,
            checkpoint_batch=batch,
        )
    return Found(ledger, is_done=newest == batch)


def ledger_lost(files: LedgerFiles, target: str, batch: int) -> BucketlineError:
    """Returns the error for a table that was written by a job with a ledger, if the checkpoint has no ledger."""
    return CheckpointMismatchError(
        f"{target} has batches of this job that were written with a ledger, but {files.root} has no ledger at batch "
        f"{batch}: the folder was removed, or left out of a copy. {_REMEDY}",
        path=target,
        checkpoint_batch=batch,
    )
