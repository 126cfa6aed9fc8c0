"""What Spark has planned for a batch of files, as tasks get it; and who reads after a file that is for Spark."""

import logging

import pytest

from bucketline.conf.job import ReaderChoice, RecordFormat, SourceConfig
from bucketline.streaming.batch.files.parquet_batch import ParquetReader, parts_in
from bucketline.streaming.job.choose_reader import choose_file_reader
from bucketline.streaming.tasks.parquet_files import FilePart
from bucketline.streaming.tasks.parquet_fit import UnfitFileError


def planned(uri: str, start: int, end: int, values: str = "[empty row]") -> str:
    return f"path: {uri}, range: {start}-{end}, partition values: {values}"


def test_the_parts_of_a_task_keep_their_order_and_know_the_size_of_their_file() -> None:
    first = f"Array({planned('file:///in/a%20b,%25.parquet', 0, 10)}, {planned('file:/in/c', 0, 7)})"
    second = f"Array({planned('file:///in/a%20b,%25.parquet', 10, 15)})"
    assert parts_in([first, second, "Array()"]) == [
        [FilePart("/in/a b,%.parquet", 0, 10, 15), FilePart("/in/c", 0, 7, 7)],
        [FilePart("/in/a b,%.parquet", 10, 15, 15)],
        [],
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (planned("s3a://b/in/a", 0, 10), "s3a://b/in/a is not a local file"),
        (planned("file://host/in/a", 0, 10), "file://host/in/a is not a local file"),
        (planned("file:///in/k=1/a", 0, 10, "[1]"), "partition columns from paths, but file:///in/k=1/a has some"),
        ("something else", "in an unknown form: something else"),
    ],
)
def test_a_plan_that_is_not_understood_is_not_used(text: str, why: str) -> None:
    with pytest.raises(UnfitFileError, match=why.replace("(", r"\(")):
        parts_in([f"Array({text})"])


def test_the_rest_of_a_run_is_for_spark_after_one_file_unless_native_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = UnfitFileError("/in/a: column 'c' is declared as int64, and in it INT32", path="/in/a")
    reader = ParquetReader(is_required=False)
    reader.give_up(error)
    assert reader.given_up.reason == error.message
    assert [r.message for r in caplog.records] == [
        f"from now on Spark reads the files instead of bucketline's tasks (source.reader = auto): {error.message}"
    ]
    with pytest.raises(UnfitFileError, match=r"/in/a: column 'c'.*nothing of the batch was written; set source"):
        ParquetReader(is_required=True).give_up(error)


def test_a_job_says_who_reads_its_files(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def chosen(reader: ReaderChoice, **options: str) -> ParquetReader | None:
        return choose_file_reader(SourceConfig("parquet", options, RecordFormat.NONE, reader), options)

    assert chosen(ReaderChoice.AUTO, path="/in", maxFilesPerTrigger="1") == ParquetReader(is_required=False)
    assert chosen(ReaderChoice.NATIVE, path="file:/in") == ParquetReader(is_required=True)
    assert chosen(ReaderChoice.SPARK, path="/in") is None
    assert chosen(ReaderChoice.AUTO, path="hdfs://n/in", datetimeRebaseMode="LEGACY") is None
    assert [r.message for r in caplog.records] == [
        "tasks read the files themselves (source.reader = auto)",
        "tasks read the files themselves (source.reader = native)",
        "Spark reads the files (source.reader = auto): tasks can read only local files themselves, but the path "
        "begins with hdfs:; source.options.datetimeRebaseMode says how Spark reads the files",
    ]
    assert choose_file_reader(SourceConfig("orc", {}, RecordFormat.NONE), {}) is None
