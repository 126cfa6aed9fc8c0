"""`ingest` and `job-file` as far as they go without Spark: settings, refusals, the script for spark-submit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bucketline.streaming.cli.commands import program

JOB = """
table: {root}/shop.db/orders
source:
  format: kafka
  options: {{kafka.bootstrap.servers: "localhost:9092", subscribe: orders, kafka.sasl.jaas.config: hush}}
  decode: json
checkpoint: {root}/checkpoint
create: {{schema: "id BIGINT, v STRING", primary-key: [id], options: {{bucket: "4"}}}}
options: {{compaction: none}}
"""


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format(root=tmp_path))
    return str(path)


def _ingest(*arguments: str) -> Result:
    return CliRunner().invoke(program, ["ingest", *arguments])


def test_print_config_tells_each_setting_and_where_it_comes_from(job: str) -> None:
    found = _ingest("--conf-file", job, "--set", "options.compaction=inline", "--print-config", "--format", "json")
    assert found.exit_code == 0, found.stderr
    rows = {row["key"]: row for row in map(json.loads, found.stdout.splitlines())}
    assert rows["source.format"] == {"key": "source.format", "value": "kafka", "origin": job}
    assert rows["options.compaction"]["origin"] == "command line"
    assert rows["options.bucket"] == {"key": "options.bucket", "value": "4", "origin": "table"}
    assert rows["options.num-sorted-run.compaction-trigger"]["origin"] == "default"
    assert "hush" not in found.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "Missing option '--conf-file'"),
        (["--conf-file", "nowhere.yaml"], 3, "cannot read job file"),
        (["--conf-file", "JOB", "--set", "sorce.format=rate"], 3, "did you mean 'source.format'"),
        (["--conf-file", "JOB", "--set", "source.format"], 3, "is not 'key=value'"),
        (["--conf-file", "JOB", "--set", "trigger=soon"], 3, "availableNow"),
        (["--conf-file", "JOB", "--set", "options.bucket=8", "--print-config"], 3, "cannot be chosen by a job"),
    ],
)
def test_a_job_that_cannot_be_is_refused_before_spark_starts(
    job: str, arguments: list[str], code: int, says: str
) -> None:
    found = _ingest(*(job if a == "JOB" else a for a in arguments))
    assert (found.exit_code, says in found.stderr) == (code, True), found.stderr


def test_the_script_for_spark_submit_runs_the_job_file(job: str) -> None:
    script = CliRunner().invoke(program, ["job-file"]).stdout.strip()
    assert sorted(p.name for p in Path(script).parent.glob("*.py")) == ["__init__.py", "bucketline_ingest.py"]
    command = [sys.executable, script, "--conf-file", job, "--print-config", "--format", "csv"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.startswith("key,value,origin\n"), done.stderr
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:14]) == (2, "error [USAGE]:")
