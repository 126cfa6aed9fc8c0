"""Finds out who writes a batch, and which input the batch holds. The driver does this before any other work.

The commit user is the id of the streaming query, the commit identifier is the id of the batch. Both stay the same at a
restart from the same checkpoint. But a checkpoint that is rewound or copied by hand gives the same user and identifier
to other input. So the offsets of the batch are read as well; Spark writes them to `offsets/N` before the sink runs.
Source: Spark 4.0 FileStreamSourceLog; seen on PySpark 4.0.5 to 4.3.0.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from bucketline.state.errors import UnsupportedTableError
from bucketline.streaming.batch.inputs.offsets_log import (
    SourceOffsets,
    aligned,
    batch_time_ms,
    is_kafka,
    not_whole,
    parse_offsets,
    records_behind,
)
from bucketline.streaming.batch.preflight import require_classic

_NOTES = "bucketline"
"""The folder for bucketline's files in a checkpoint."""
QUERY_ID = "sql.streaming.queryId"
JOB_GROUP = "spark.jobGroup.id"
"""The job group of the query's thread begins with the id of the run."""


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """The identity of a micro-batch of a query. The attributes are together because they are found out once, before the
    first step of the batch, and never change.

    - `start_offsets` and `end_offsets` are canonical JSON with one array element for each source, in the order of the
      sources' ids; None if unknown.
    - `digest` is a hash of the input: of start and end offsets, and of the file names of file sources.
    - `run_id` changes with every start of the query.
    - `source` is the job's name for its Kafka cluster, and `cluster` is the id that the cluster itself returns.
    - `checkpoint` is the location of the query's checkpoint.
    - `behind` counts the records that waited at the source at the end of the last batch.
    - `topic_ids` are the ids of the batch's topics in Kafka, as far as known.
    - `turn` counts the batches with rows for this table; None if all batches have rows for it.
    - `pin` is the hash of the settings of a job of many tables.
    - `time_ms` is the time at which Spark began the batch; each attempt at the batch has the same time.
    """

    query_id: str
    batch_id: int
    start_offsets: str | None
    end_offsets: str | None
    digest: str | None
    run_id: str | None = None
    source: str | None = None
    cluster: str | None = None
    checkpoint: str | None = None
    behind: int | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    turn: int | None = None
    pin: str | None = None
    time_ms: int | None = None

    @property
    def commit_number(self) -> int:
        """The number of this batch, for work that is due in every n-th batch of the table. In a job in which some
        batches have no rows for the table, only the batches with rows for the table are counted.
        """
        return self.batch_id if self.turn is None else self.turn

    def commit_user(self, sink_id: str | None) -> str:
        return commit_user(self.query_id, sink_id)


def commit_user(query_id: str, sink_id: str | None) -> str:
    """Returns the commit user of a query's sink, which is the name of the writer in the snapshots that the sink makes.
    `sink_id` is None if the query has only one sink.
    """
    return query_id if sink_id is None else f"{query_id}-{sink_id}"


def read_identity(spark: Any, batch_id: int, checkpoint: str | None) -> BatchIdentity:
    """Returns the identity of the batch that the calling thread writes.

    `checkpoint` is the query's checkpoint location; if it is None, the running query is asked for it. Raises
    UnsupportedTableError outside of a streaming query and in another thread than the query's own, and OptionError with
    Spark Connect.
    """
    require_classic(spark)
    context = spark.sparkContext
    query_id = context.getLocalProperty(QUERY_ID)
    if not query_id:
        raise UnsupportedTableError(
            "no streaming query runs on this thread, so a repeated batch could not be recognised; call the sink "
            "directly from foreachBatch, not from a thread pool, and use table.write(...) for batch data"
        )
    run = _run_of(spark, query_id, context.getLocalProperty(JOB_GROUP))
    root = checkpoint if checkpoint is not None else _checkpoint_of(run.query)
    if root is None:
        raise UnsupportedTableError(
            "this version of Spark does not tell the query's checkpoint location; "
            "pass it: TableSink(path, checkpoint='<the checkpointLocation>')"
        )
    path = f"{root}/offsets/{batch_id}"
    log = _read(spark, path)
    if log is None:
        raise UnsupportedTableError(
            f"{root} holds no offsets of batch {batch_id}; pass the checkpointLocation of this query as checkpoint",
            checkpoint=root,
        )
    end = parse_offsets(log, path)
    sources, ends = list(end), list(end.values())
    if batch_id == 0:
        before = _initial_offsets(spark, root, sources)
    else:
        before = run.ends.get((root, batch_id - 1)) or _offsets(spark, root, batch_id - 1)
    run.ends = {(root, batch_id): end}
    start = aligned(before, sources)
    names = [_file_names(spark, root, *of) for of in zip(sources, start or [None] * len(ends), ends, strict=True)]
    return BatchIdentity(
        query_id=str(query_id),
        batch_id=batch_id,
        start_offsets=None if start is None else json.dumps(start, sort_keys=True),
        end_offsets=json.dumps(ends, sort_keys=True),
        digest=batch_digest(start, ends, names),
        checkpoint=root,
        behind=records_behind(_latest_offsets(run.query), ends),
        run_id=run.id,
        time_ms=batch_time_ms(log),
    )


def batch_digest(start: list[Any] | None, end: list[Any], file_names: list[list[str] | None]) -> str:
    """Returns a hash of a batch's input. The hash depends on the file names of a file source, and on the offsets of
    other sources.
    """
    inputs = []
    for i, new in enumerate(end):
        old = start[i] if start is not None and i < len(start) else None
        names = file_names[i]
        inputs.append([old, new] if names is None else sorted(names))
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:32]


def kafka_offsets(offsets: str | None) -> dict[tuple[str, str], int]:
    """Takes the offsets of a batch as JSON, and returns the offset of each topic and partition; empty for sources other
    than Kafka.
    """
    return {
        (topic, partition): offset
        for source in json.loads(offsets or "[]")
        if is_kafka(source)
        for topic, partitions in source.items()
        for partition, offset in partitions.items()
    }


def numbered_offsets(offsets: str | None) -> dict[tuple[str, int], int]:
    """Takes the offsets of a batch as JSON, and returns the offset of each topic and partition, with the partition as a
    number; empty for sources other than Kafka.
    """
    return {(topic, int(partition)): offset for (topic, partition), offset in kafka_offsets(offsets).items()}


def new_partitions(batch: BatchIdentity) -> frozenset[tuple[str, str]]:
    """Returns the topics and partitions that this batch reads and that the previous batch did not read."""
    return frozenset(kafka_offsets(batch.end_offsets).keys() - kafka_offsets(batch.start_offsets).keys())


@dataclass(slots=True)
class _Run:
    """Facts about a run of a query, stored because asking Spark for a fact calls into the JVM.

    `id` is the id of the run, and `query` is Spark's own object of the query. `ends` holds the end offsets of the
    newest batch, by checkpoint and batch id.
    """

    id: str | None
    query: Any
    ends: dict[tuple[str, int], SourceOffsets] = field(default_factory=dict)


_RUNS_KEPT = 8
_runs: "OrderedDict[str, _Run]" = OrderedDict()
"""The runs of the queries that had a batch lately, by id."""


def _run_of(spark: Any, query_id: str, group: str | None) -> _Run:
    """Returns the id of the current run of a query, and Spark's object of the query. `group` is Spark's job group of
    the calling thread.

    Usually `group` is the id of the run, and the result is remembered. Otherwise the run is looked up each time: user
    code in a batch may have set the group, and several queries and runs may share this group.
    """
    run = None if group is None else _runs.pop(group, None)
    if run is None:
        query = running_query(spark, query_id)
        run = _Run(group if query is None else str(query.runId()), query)
    if group is None or run.query is None or run.id != group:
        return run
    _runs[group] = run
    while len(_runs) > _RUNS_KEPT:
        _runs.popitem(last=False)
    return run


def _checkpoint_of(query: Any) -> str | None:
    """Returns the checkpoint location of a running query; None if `query` is None."""
    return None if query is None else str(query.resolvedCheckpointRoot())


def _latest_offsets(query: Any) -> list[Any]:
    """Returns for each source the newest offsets that Spark knew when the query last reported its progress; empty
    before the first report.
    """
    progress = None if query is None else query.lastProgress()
    if progress is None:
        return []
    # The JSON of the progress is one call into the JVM; its sources would be several calls each.
    latest = [source.get("latestOffset") for source in json.loads(progress.json())["sources"]]
    return [offset if isinstance(offset, dict) else None for offset in latest]


def running_query(spark: Any, query_id: str) -> Any:
    """Returns Spark's object of a running query; None if there is no such query."""
    jvm = spark.sparkContext._jvm
    return spark._jsparkSession.sharedState().activeStreamingQueries().get(jvm.java.util.UUID.fromString(query_id))


def _offsets(spark: Any, root: str, batch_id: int) -> SourceOffsets | None:
    """Returns the offsets of each source in `offsets/N`; None if there is no such file."""
    path = f"{root}/offsets/{batch_id}"
    text = _read(spark, path)
    return None if text is None else parse_offsets(text, path)


def _initial_offsets(spark: Any, root: str, sources: list[str]) -> SourceOffsets | None:
    """Returns the offsets at which the Kafka sources began; None if no source is a Kafka source.

    Spark writes the first offsets of a source to `sources/<id>/0`: a zero byte, a version line, and JSON.
    """
    starts = {source: _kafka_start(_read(spark, f"{root}/sources/{source}/0") or "") for source in sources}
    return starts if any(f is not None for f in starts.values()) else None


def first_offsets(spark: Any, batch: BatchIdentity) -> str | None:
    """Returns the offsets at which the query of a batch began to read Kafka, as JSON; None if they are not known."""
    of_batch = None if batch.checkpoint is None else _offsets(spark, batch.checkpoint, batch.batch_id)
    if batch.checkpoint is None or of_batch is None:
        return None
    began = _initial_offsets(spark, batch.checkpoint, list(of_batch))
    return None if began is None else json.dumps(list(began.values()), sort_keys=True)


def read_note(spark: Any, batch: BatchIdentity, name: str) -> str | None:
    """Returns the text that `write_note` wrote under this name in the checkpoint of a batch; None if there is no such
    text.
    """
    return None if batch.checkpoint is None else _read(spark, f"{batch.checkpoint}/{_NOTES}/{name}")


def write_note(spark: Any, batch: BatchIdentity, name: str, text: str) -> None:
    """Writes a text under a name into the checkpoint of a batch. `--reset-identity` does not copy the text to the new
    checkpoint.
    """
    if batch.checkpoint is None:
        return
    context = spark.sparkContext
    location = _classes(context._jvm)[0](f"{batch.checkpoint}/{_NOTES}/{name}")
    stream = location.getFileSystem(context._jsc.hadoopConfiguration()).create(location, True)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()


def query_of(spark: Any, root: str) -> str | None:
    """Returns the id of the query in a checkpoint folder; None if no query has begun there. Raises CorruptFileError if
    the file with the id cannot be parsed.
    """
    path = f"{root}/metadata"
    text = _read(spark, path)
    try:
        return None if text is None else str(json.loads(text)["id"])
    except ValueError as e:
        raise not_whole(path) from e


def newest_offsets_of(spark: Any, root: str) -> SourceOffsets:
    """Returns the newest offsets in the checkpoint folder of a query that reads Kafka; empty if no batch was planned
    yet.

    Raises CorruptFileError if a file that the query needs at its start was not written completely.
    """
    for path in (f"{root}/sources/0/0", _newest(spark, f"{root}/commits")):
        text = None if path is None else _read(spark, path)
        if path is not None and text is not None and "\n" not in text:
            raise not_whole(path)
    newest = _newest(spark, f"{root}/offsets")
    offsets = {} if newest is None else parse_offsets(_read(spark, newest) or "", newest)
    if newest is not None and (not offsets or any(isinstance(of, str) for of in offsets.values())):
        raise not_whole(newest)
    return offsets


def newest_planned_batch(spark: Any, root: str) -> int | None:
    """Returns the id of the newest batch that Spark has planned in a checkpoint folder, whether the batch is done or
    not; None if there is no batch.
    """
    newest = _newest(spark, f"{root}/offsets")
    return None if newest is None else int(newest.rpartition("/")[2])


def newest_done_batch(spark: Any, root: str) -> int | None:
    """Returns the id of the newest batch that Spark has recorded as done in a checkpoint folder; None if there is no
    such batch.
    """
    newest = _newest(spark, f"{root}/commits")
    return None if newest is None else int(newest.rpartition("/")[2])


def has_ledger(spark: Any, root: str) -> bool:
    """Returns True if a checkpoint folder holds a ledger (the state of the tables of a job) and so belongs to a job of
    many tables.
    """
    return _newest(spark, f"{root}/{_NOTES}/ledger") is not None


def _newest(spark: Any, folder: str) -> str | None:
    """Returns the path of the file of the newest batch in a folder of a checkpoint; None if the folder has no such
    file.
    """
    context = spark.sparkContext
    location = context._jvm.org.apache.hadoop.fs.Path(folder)
    files = location.getFileSystem(context._jsc.hadoopConfiguration())
    names = [str(f.getPath().getName()) for f in files.listStatus(location)] if files.exists(location) else []
    newest = max((int(name) for name in names if name.isdigit()), default=None)
    return None if newest is None else f"{folder}/{newest}"


def _kafka_start(text: str) -> Any:
    version, _, offsets = text.lstrip("\x00").partition("\n")
    return json.loads(offsets) if version == "v1" and offsets.startswith('{"') and ":{" in offsets else None


def _file_names(spark: Any, root: str, source: str, old: Any, new: Any) -> list[str] | None:
    """Returns the paths of the files that this batch reads from a file source; None if the source is not a file source.
    `old` and `new` are the offsets of the source before and after the batch.
    """
    if not isinstance(new, dict) or "logOffset" not in new:
        return None
    first = old["logOffset"] + 1 if isinstance(old, dict) else 0
    names: list[str] = []
    for log in range(first, int(new["logOffset"]) + 1):
        text = _read(spark, f"{root}/sources/{source}/{log}") or _read(spark, f"{root}/sources/{source}/{log}.compact")
        entries = [json.loads(line) for line in (text or "").splitlines()[1:]]
        names += [str(e["path"]) for e in entries if int(e.get("batchId", log)) == log]
    return names


def _read(spark: Any, path: str) -> str | None:
    """Returns the text of a file on any file system that Spark knows; None if the file does not exist."""
    context = spark.sparkContext
    new_path, texts = _classes(context._jvm)
    location = new_path(path)
    files = location.getFileSystem(context._jsc.hadoopConfiguration())
    if not files.exists(location):
        return None
    stream = files.open(location)
    try:
        return str(texts.toString(stream, "UTF-8"))
    finally:
        stream.close()


@lru_cache(1)
def _classes(jvm: Any) -> tuple[Any, Any]:
    """Returns the JVM classes Path and IOUtils. The classes are looked up only once, because each lookup takes several
    calls.
    """
    return jvm.org.apache.hadoop.fs.Path, jvm.org.apache.commons.io.IOUtils
