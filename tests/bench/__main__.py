"""Runs measurements and prints them: `python -m tests.bench [NAME...]`, all of them without a name.

Each runs in a process of its own, so that none inherits the memory, the caches or the warm JVM of another.
`$BUCKETLINE_BENCH_SCALE` (a part of the full sizes), `$BUCKETLINE_BENCH_REPEATS` and `$BUCKETLINE_BENCH_JSON` (where
the results go as JSON) change it. The exit code is 1 when a target is missed at full size.

`python -m tests.bench --report [FOLDER [NAME...]]` measures all rivals side by side instead, and writes a page about
them (tests/bench/rivals/report.py).
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench import catalogue
from tests.bench.result import Size
from tests.bench.rivals import report

JSON_VARIABLE = "BUCKETLINE_BENCH_JSON"


def main(names: list[str]) -> int:
    if len(names) == 3 and names[0] == "--one":
        _measure(names[1], Path(names[2]))
        return 0
    if names[:1] == ["--report"]:
        return report.main(names[1:])
    unknown = [n for n in names if n not in catalogue.BENCHES]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; there are {', '.join(catalogue.BENCHES)}", file=sys.stderr)
        return 2
    found: list[dict[str, Any]] = []
    failed = []
    for name in names or list(catalogue.BENCHES):
        with tempfile.TemporaryDirectory(prefix="bucketline-bench-") as scratch:
            out = Path(scratch) / "result.json"
            print(f"measuring {name} ...", flush=True)
            done = subprocess.run([sys.executable, "-m", "tests.bench", "--one", name, str(out)], check=False)
            if done.returncode == 0:
                found += json.loads(out.read_text())
            else:
                failed.append(name)
    _show(found)
    if JSON_VARIABLE in os.environ:
        Path(os.environ[JSON_VARIABLE]).write_text(json.dumps(found, indent=2) + "\n")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    missed = Size.from_environment().scale >= 1 and not all(r["met"] for r in found)
    return 1 if failed or missed else 0


def _measure(name: str, out: Path) -> None:
    root = out.parent / "work"
    root.mkdir()
    results = catalogue.BENCHES[name](Size.from_environment(), root)
    out.write_text(json.dumps([r.as_json() for r in results]))


def _show(results: list[dict[str, Any]]) -> None:
    columns = "what", "rows", "rows/s", "seconds", "other", "MiB", "worker MiB", "ratio", "of CPU", "target", "met"
    table = Table("", *columns)
    for r in results:
        cpu = r["detail"].get("cpu ratio")
        table.add_row(
            r["name"],
            r["what"],
            f"{r['rows']:,}",
            f"{r['rows_per_second']:,.0f}",
            f"{r['seconds']:.3g}",
            f"{r['other_seconds']:.3g}",
            f"{r['written_bytes'] / 2**20:,.0f}",
            f"{r['worker_peak_bytes'] / 2**20:,.0f}",
            f"{r['ratio']:.2f}",
            "" if cpu is None else f"{cpu:.2f}",
            r["target"],
            "yes" if r["met"] else "NO",
        )
    Console(width=None if sys.stdout.isatty() else 170).print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
