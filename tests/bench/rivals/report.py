"""The report of all rivals: `side-by-side.md`, and in the folder beside it plots in SVG and the raw results in JSON.

`.ci/run bench --report [FOLDER [NAME...]]`. The page is made from the JSON alone, so that `--again` in place of a
measurement writes page and plots anew from results that are there. With `--more` the turns are added to those of the
same commit that are there.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.rivals.all import RIVALS
from tests.bench.rivals.measure import PLAIN, VERSIONS, Measured, measured
from tests.bench.rivals.page import FIGURES, Figure, page, slug
from tests.bench.rivals.rival import BATCHES, BUCKETS, WARM_UP, Load
from tests.support.peers.jars import CHECKOUT
from tests.support.peers.peer import PYPAIMON_REQUIREMENTS


def main(arguments: list[str]) -> int:
    again, adds = "--again" in arguments, "--more" in arguments
    left = [a for a in arguments if a not in ("--again", "--more")]
    folder = Path(left[0] if left else ".venv/report")
    known = [*RIVALS, *PLAIN]
    names = left[1:] or known
    if unknown := [name for name in names if name not in known]:
        print(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    pictures = folder / "side-by-side"
    pictures.mkdir(parents=True, exist_ok=True)
    raw = pictures / "results.json"
    if not again:
        load = Load.from_environment()
        about = _about(load)
        at = {key: about[key] for key in ("date", "commit")}
        before: dict[str, Any] = json.loads(raw.read_text()) if raw.exists() else {"rows": None}
        # The results are written after each turn, so that a run that is stopped has lost nothing else.
        for so_far in measured(names, load):
            found = [m.as_json() | _described(m.name) | at for m in so_far if m.turns or m.not_run]
            raw.write_text(json.dumps({**about, "rivals": beside(before, found, load, adds=adds)}, indent=1) + "\n")
    results = json.loads(raw.read_text())
    for figure in FIGURES:
        if figure.in_plot:
            _plot(figure, results["rivals"], pictures / f"{slug(figure.title)}.svg")
    (folder / "side-by-side.md").write_text(page(results))
    print(folder / "side-by-side.md")
    return 0


def beside(before: Mapping[str, Any], found: list[dict[str, Any]], load: Load, *, adds: bool) -> list[dict[str, Any]]:
    """Returns what was found. Of the rivals that were not measured now, it has what the results `before` say, if they
    are of the same load.

    With `adds`, a rival also keeps the turns before that are of the same commit.
    """
    kept: list[dict[str, Any]] = before["rivals"] if before["rows"] == load.rows else []
    by_name = {rival["name"]: rival for rival in kept}
    for rival in found:
        old = by_name.get(rival["name"], {"turns": []})
        if adds and old["turns"] and old.get("commit") == rival["commit"]:
            turns = [*old["turns"], *rival["turns"]]
            rival = {**rival, "turns": turns, "not_run": None if turns else rival["not_run"]}
        by_name[rival["name"]] = rival
    return [by_name.get(name) or _not_measured(name) for name in (*RIVALS, *PLAIN)]


def _not_measured(name: str) -> dict[str, Any]:
    why = RIVALS[name].why_not() if name in RIVALS else None
    return Measured(name, not_run=why or "not measured for this page").as_json() | _described(name)


def _described(name: str) -> dict[str, Any]:
    """Title, version and settings, as they go into the results."""
    if name in RIVALS:
        rival = RIVALS[name]
        return {
            "title": rival.title,
            "version": rival.version or _own(rival.name),
            "spark": rival.spark,
            "table_settings": dict(rival.table_settings),
            "session_settings": dict(rival.session_settings),
            "remark": rival.remark,
        }
    versions = {"plain-ours": _commit(), "plain-pypaimon": PYPAIMON_REQUIREMENTS[0].partition("==")[2], **VERSIONS}
    settings = {"bucket": str(BUCKETS), "write-only": "true"}
    return {
        "title": f"{PLAIN[name][0]}, without Spark",
        "version": versions[name],
        "spark": None,
        "table_settings": settings,
        "session_settings": {},
        "remark": "nothing is compacted",
    }


def _own(name: str) -> str:
    return f"Spark {version('pyspark')}" if name == "parquet" else _commit()


def _about(load: Load) -> dict[str, Any]:
    one = import_module("tests.bench.rivals.one")
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
        "machine": f"{os.cpu_count()} cores ({platform.machine()}), Linux, Python {platform.python_version()}, "
        f"PySpark {version('pyspark')}, pyarrow {version('pyarrow')}",
        "rows": load.rows,
        "keys": load.keys,
        "batches": BATCHES,
        "warm_up": WARM_UP,
        "buckets": BUCKETS,
        "session": one.BASE,
    }


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _plot(figure: Figure, rivals: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draws one bar for each rival, with the spread of its turns."""
    pyplot: Any = import_module("matplotlib.pyplot")
    run = [r for r in reversed(rivals) if figure.of_turns(r["turns"])]
    found = [figure.of_turns(r["turns"]) for r in run]
    middle = [median(f) for f in found]
    spread = [
        [m - min(f) for m, f in zip(middle, found, strict=True)],
        [max(f) - m for m, f in zip(middle, found, strict=True)],
    ]
    drawing, axes = pyplot.subplots(figsize=(8, 0.6 + 0.4 * len(run)))
    colors = ["tab:blue" if r["title"].startswith("bucketline") else "tab:gray" for r in run]
    axes.barh([r["title"].replace("`", "") for r in run], middle, xerr=spread, color=colors)
    axes.set_title(figure.title)
    pyplot.rcParams["svg.hashsalt"] = "bucketline"
    drawing.savefig(path, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(drawing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
