"""What a job tells until its first batch is written."""

from dataclasses import dataclass, field

from bucketline.streaming.job.start_report import StartReport


@dataclass
class Query:
    message: str
    asked: int = 0

    @property
    def status(self) -> dict[str, str]:
        self.asked += 1
        return {"message": self.message}


@dataclass
class Batch:
    has_begun: bool = False
    is_written: bool = False
    is_busy: bool = False


@dataclass
class Watch:
    now: float = 0.0
    lines: list[str] = field(default_factory=list)


def test_each_change_is_told_and_repeated_until_the_first_batch_is_written() -> None:
    watch, query, batch = Watch(), Query("Processing new data"), Batch()
    report = StartReport(watch.lines.append, lambda: watch.now)
    for moment in range(12):
        watch.now = float(moment)
        report.watch(query, batch)
        report.watch(query, batch)
    batch.has_begun = True
    watch.now = 12.0
    report.watch(query, batch)
    batch.is_written = True
    watch.now = 60.0
    report.watch(query, batch)
    waiting = "waiting for the first batch: Processing new data"
    assert watch.lines == [
        f"{waiting} (0 s since the query started)",
        f"{waiting} (5 s since the query started)",
        f"{waiting} (10 s since the query started)",
        "the first batch runs (12 s since the query started)",
    ]
    assert query.asked == 12, "Spark is asked once a second, and no more once a batch has begun"


def test_a_query_that_has_asked_kafka_for_ten_seconds_waits_for_kafka_at_its_start_and_later() -> None:
    watch, query, batch = Watch(), Query("Getting offsets from KafkaV2[Subscribe[orders]]"), Batch()
    report = StartReport(watch.lines.append, lambda: watch.now, kafka="k:9092")
    for moment in range(17):
        watch.now = float(moment)
        report.watch(query, batch)
    assert watch.lines[2:] == [
        "waiting for Kafka at k:9092 (10 s without an answer)",
        "waiting for Kafka at k:9092 (15 s without an answer)",
    ]
    watch.lines.clear()
    batch.has_begun = batch.is_written = True
    query.message = "Waiting for data to arrive"
    for moment in range(17, 100):
        watch.now = float(moment)
        report.watch(query, batch)
    query.message = "Getting offsets from KafkaV2[Subscribe[orders]]"
    for moment in range(100, 112):
        watch.now = float(moment)
        report.watch(query, batch)
    assert watch.lines == ["waiting for Kafka at k:9092 (10 s without an answer)"]
    asked, batch.is_busy = query.asked, True
    watch.now = 200.0
    report.watch(query, batch)
    assert query.asked == asked, "a batch that runs is not disturbed"


def test_a_query_that_ends_without_a_batch_says_that_there_was_nothing_new() -> None:
    lines: list[str] = []
    StartReport(lines.append).end(Batch(has_begun=True))
    assert lines == []
    StartReport(lines.append).end(Batch())
    assert lines == ["the source has no new records: the job ends without a batch"]
