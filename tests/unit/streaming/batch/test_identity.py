"""The identity of a batch: what a run has said is not asked again, and nothing is carried from one run to another."""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from bucketline.streaming.batch.identity import BatchIdentity, read_identity

ROOT = "mem:/checkpoint"


@dataclass
class FakeSpark:
    """A session in whose JVM a query runs; `files` are those of its checkpoint, `read` the names of what was read.

    `group` is the job group of the query's thread, where a function has set another than the id of the run.
    """

    files: dict[str, str]
    run: str = "run-1"
    group: str | None = None
    read: list[str] = field(default_factory=list)
    queries_asked: int = 0
    waiting: dict[str, int] = field(default_factory=lambda: {"0": 9})

    @property
    def sparkContext(self) -> "FakeSpark":
        return self

    def getLocalProperty(self, key: str) -> str:
        return {"sql.streaming.queryId": "query", "spark.jobGroup.id": self.group or self.run}[key]

    @property
    def _jsc(self) -> Any:
        return SimpleNamespace(hadoopConfiguration=lambda: None)

    @property
    def _jvm(self) -> Any:
        # A JVM of its own, so that no class is known from another.
        hadoop = SimpleNamespace(fs=SimpleNamespace(Path=self._path))
        texts = SimpleNamespace(toString=lambda stream, charset: stream.text)
        commons = SimpleNamespace(io=SimpleNamespace(IOUtils=texts))
        uuids = SimpleNamespace(UUID=SimpleNamespace(fromString=lambda text: text))
        return Jvm(SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop, commons=commons)), SimpleNamespace(util=uuids))

    @property
    def _jsparkSession(self) -> Any:
        found = SimpleNamespace(get=self._query)
        return SimpleNamespace(sharedState=lambda: SimpleNamespace(activeStreamingQueries=lambda: found))

    def _query(self, query_id: str) -> Any:
        self.queries_asked += 1
        progress = {"sources": [{"latestOffset": {"t": self.waiting}}, {"latestOffset": "7"}, {}]}
        says = SimpleNamespace(json=lambda: json.dumps(progress))
        return SimpleNamespace(runId=lambda: self.run, resolvedCheckpointRoot=lambda: ROOT, lastProgress=lambda: says)

    def _path(self, path: str) -> Any:
        def opened(of: Any) -> Any:
            self.read.append(path.removeprefix(f"{ROOT}/"))
            return SimpleNamespace(text=self.files[path.removeprefix(f"{ROOT}/")], close=lambda: None)

        files = SimpleNamespace(exists=lambda of: path.removeprefix(f"{ROOT}/") in self.files, open=opened)
        return SimpleNamespace(getFileSystem=lambda conf: files)


@dataclass(frozen=True, eq=False)
class Jvm:
    org: Any
    java: Any


def spark(ends: dict[int, int], **more: Any) -> FakeSpark:
    files = {f"offsets/{n}": f'v1\n{{}}\n{{"t":{{"0":{end}}}}}' for n, end in ends.items()}
    return FakeSpark(files | {"sources/0/0": '\x00v1\n{"t":{"0":2}}'}, **more)


def span(found: BatchIdentity) -> tuple[Any, Any]:
    return json.loads(found.start_offsets or "null"), json.loads(found.end_offsets or "null")


def test_a_run_is_asked_for_each_batchs_own_offsets_alone() -> None:
    session = spark({0: 4, 1: 6, 2: 9}, run="asked-once")
    found = [read_identity(session, n, None) for n in range(3)]
    assert [span(f) for f in found] == [([{"t": {"0": a}}], [{"t": {"0": b}}]) for a, b in ((2, 4), (4, 6), (6, 9))]
    assert session.read == ["offsets/0", "sources/0/0", "offsets/1", "offsets/2"]
    assert session.queries_asked == 1


def test_another_run_reads_where_a_batch_begins_anew() -> None:
    read_identity(spark({0: 4, 1: 6}, run="before"), 1, None)
    rewritten = spark({1: 5, 2: 9}, run="after")
    found = read_identity(rewritten, 2, None)
    assert span(found) == ([{"t": {"0": 5}}], [{"t": {"0": 9}}])
    assert (rewritten.read, rewritten.queries_asked) == (["offsets/2", "offsets/1"], 1)


def test_runs_that_share_a_job_group_of_the_users_own_are_told_apart() -> None:
    read_identity(spark({0: 4, 1: 6}, run="first", group="etl"), 1, None)
    other = spark({1: 5, 2: 9, 3: 11}, run="second", group="etl", waiting={"0": 12})
    found = [read_identity(other, n, None) for n in (2, 3)]
    assert [span(f) for f in found] == [([{"t": {"0": a}}], [{"t": {"0": b}}]) for a, b in ((5, 9), (9, 11))]
    assert [f.behind for f in found] == [3, 1]
    assert [f.run_id for f in found] == ["second", "second"]


def test_a_batch_that_is_no_follower_of_the_last_one_reads_where_it_begins() -> None:
    session = spark({0: 4, 1: 6, 2: 9}, run="back-and-forth")
    spans = [span(read_identity(session, n, None)) for n in (1, 1, 2)]
    assert spans == [([{"t": {"0": a}}], [{"t": {"0": b}}]) for a, b in ((4, 6), (4, 6), (6, 9))]
    assert session.read == ["offsets/1", "offsets/0", "offsets/1", "offsets/0", "offsets/2"]


def test_what_waits_at_a_source_is_counted_from_the_newest_progress() -> None:
    session = spark({0: 4}, run="behind", waiting={"0": 11})
    assert read_identity(session, 0, None).behind == 7
