"""Pages under `docs/` as tests see them: the shell commands of a section, run as they stand but for their folder."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

from tests.support.peers.jars import spark_kafka_jars

DOCS = Path(__file__).resolve().parents[3] / "docs"
DEMO = "/tmp/bucketline-demo"
TIMEOUT_S = 300


def commands(page: str, section: str) -> list[str]:
    """The blocks of shell commands in a section of a page, in their order."""
    _, _, rest = (DOCS / page).read_text(encoding="utf-8").partition(f"\n## {section}\n")
    assert rest, f"docs/{page} has no section {section!r}"
    return re.findall(r"^```bash\n(.*?)^```", rest.partition("\n## ")[0], re.DOTALL | re.MULTILINE)


def run_commands(text: str, folder: Path, replaced: Mapping[str, str] | None = None) -> str:
    """Runs a block in `folder`, which stands for the folder of the demo; what it printed, both streams together.

    The environment is that of a user who has exported the jars. `replaced` texts are others than the page's.
    """
    for old, new in ({DEMO: str(folder)} | dict(replaced or {})).items():
        text = text.replace(old, new)
    jars = ",".join(map(str, spark_kafka_jars(pyspark.__version__)))
    quick = "--master local[2] --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_SUBMIT_ARGS": f"--jars {jars} {quick} --conf spark.log.level=WARN pyspark-shell",
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout[-6000:]}"
    return done.stdout
