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


@dataclass
class Watch:
    now: float = 0.0
    lines: list[str] = field(default_factory=list)


def test_each_change_is_told_and_repeated_until_the_first_batch_is_written() -> None:
    watch, query, batch = Watch(), Query("Getting offsets from Kafka"), Batch()
    report = StartReport(watch.lines.append, lambda: watch.now)
    for moment in range(20):
        watch.now = float(moment)
        report.watch(query, batch)
        report.watch(query, batch)
    batch.has_begun = True
    watch.now = 20.0
    report.watch(query, batch)
    batch.is_written = True
    watch.now = 60.0
    report.watch(query, batch)
    waiting = "waiting for the first batch: Getting offsets from Kafka"
    assert watch.lines == [
        f"{waiting} (0 s since the query started)",
        f"{waiting} (15 s since the query started)",
        "the first batch runs (20 s since the query started)",
    ]
    assert query.asked == 20, "Spark is asked once a second, and no more once a batch has begun"


def test_a_query_that_ends_without_a_batch_says_that_there_was_nothing_new() -> None:
    lines: list[str] = []
    StartReport(lines.append).end(Batch(has_begun=True))
    assert lines == []
    StartReport(lines.append).end(Batch())
    assert lines == ["the source holds nothing new: the job ends without a batch"]
