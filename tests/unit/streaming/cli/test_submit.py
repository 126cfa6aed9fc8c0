"""What spark-submit's job file does with its arguments."""

from bucketline.streaming.submit.bucketline_ingest import command_of


def test_the_job_file_ingests_or_compacts() -> None:
    assert command_of(["--conf-file", "a.yaml"]) == ["ingest", "--conf-file", "a.yaml"]
    assert command_of(["compactor", "/t", "--once"]) == ["compactor", "--spark", "/t", "--once"]
