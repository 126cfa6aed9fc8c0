"""The page of the report, made from the raw results."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

Turn = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """A column of the report: what a turn says of it."""

    title: str
    of: Callable[[Turn], float]
    digits: int
    in_plot: bool = False

    def of_turns(self, turns: Sequence[Turn]) -> list[float]:
        """Returns the number of each turn; none of a turn that was measured before the report had this figure."""
        found = []
        for turn in turns:
            with suppress(KeyError):
                found.append(self.of(turn))
        return found


FIGURES = (
    Figure("a batch, s", lambda t: median(t["batch_seconds"]), 2, in_plot=True),
    Figure("slowest batch, s", lambda t: max(t["batch_seconds"]), 2),
    Figure("CPU a row, µs", lambda t: 1e6 * t["cpu"] / t["in_rows"], 1, in_plot=True),
    Figure("bytes written a byte of input", lambda t: t["bytes"] / t["in_bytes"], 2, in_plot=True),
    Figure("data files", lambda t: t["data_files"], 0),
    Figure("read, s", lambda t: min(t["again"]["read_seconds"]), 2, in_plot=True),
    Figure("CPU of a read, s", lambda t: min(t["again"]["read_cpu"]), 2),
    Figure("memory, MiB", lambda t: max(t["peak_bytes"], t["again"]["peak_bytes"]) / 2**20, 0, in_plot=True),
    Figure("restart, s", lambda t: t["again"]["restart_seconds"], 1, in_plot=True),
    Figure("CPU of a restart, s", lambda t: t["again"]["restart_cpu"], 1),
)


_HEAD = """# Side by side

*For whoever compares bucketline with other ways to keep a table up to date.*

This page is written by `.ci/run bench --report`. [`results.json`](side-by-side/results.json) has the raw results.

{batches} batches of {rows:,} upserts of nine columns over {keys:,} keys go out of Parquet files into {buckets} buckets,
where there are buckets, after {warm_up} batches into another table that warm the session up. Then a new session goes on
with one more batch, and reads the whole table three times. Each number is the median of the turns; the lowest and the
highest are in brackets.

Measured on {dates} at {commits}, on {machine}, in {turns}. The load of the machine at the end of each turn
was {loads}: other programs were at work, so that CPU says more than the clock.
"""

_EXPLAINED = """
- *A batch* is the time from its trigger to its end that Spark reports, without Spark the time of reading its input and
  writing it: the median of the batches of a turn.
- *CPU* is that of the process and all below it, with the JVM's compiler and garbage collector.
- *Bytes written* are all bytes in the table's folder after the last batch. Nothing is removed meanwhile, so that they
  include old versions, metadata and what has been compacted. *Data files* counts those of all versions.
- *Read* is the fastest of three: with Spark all columns into a hash, without Spark all rows as Arrow.
- *Memory* is the largest sum of all processes at one time, with a heap of the JVM of at most 4 GiB; without Spark it is
  the peak of the process.
- *Restart* is the time from the start of a new process to the end of the batch that it goes on with.
"""


def page(results: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    rivals = results["rivals"]
    shown = {k: v for k, v in results.items() if k not in ("rivals", "session", "turns")}
    dates, commits = _of_measured(results, "date"), _of_measured(results, "commit")
    told = {"dates": " and ".join(dates), "commits": f"commit{'s' * (len(commits) > 1)} {' and '.join(commits)}"}
    lines = _HEAD.format(**shown, **told, turns=_turns(rivals), loads=_loads(rivals)).splitlines()
    lines += ["", "| | " + " | ".join(figure.title for figure in FIGURES) + " |", "|---" * (len(FIGURES) + 1) + "|"]
    lines += [_row(rival) for rival in rivals]
    lines += [*_EXPLAINED.splitlines(), "", "## Plots", ""]
    lines += [f"![{f.title}](side-by-side/{slug(f.title)}.svg)\n" for f in FIGURES if f.in_plot]
    lines += [
        "## Settings",
        "",
        "All that differs from the defaults, beside what all have: " + _pairs(results["session"]) + ".",
        "",
    ]
    lines += ["| | version | of the table | of the session | remark |", "|---|---|---|---|---|"]
    for r in rivals:
        settings = (_pairs(r[of]) for of in ("table_settings", "session_settings"))
        lines.append("| " + " | ".join((r["title"], r["version"], *settings, r["remark"])) + " |")
    return "\n".join(lines) + "\n"


def _row(rival: Mapping[str, Any]) -> str:
    if not rival["turns"]:
        return f"| {rival['title']} | not run: {rival['not_run']} |" + " |" * (len(FIGURES) - 1)
    cells = []
    for figure in FIGURES:
        found = figure.of_turns(rival["turns"])
        if not found:
            cells.append("not measured")
            continue
        shown = [f"{number:,.{figure.digits}f}" for number in (median(found), min(found), max(found))]
        cells.append(f"{shown[0]} ({shown[1]}–{shown[2]})" if len(found) > 1 else shown[0])
    return f"| {rival['title']} | " + " | ".join(cells) + " |"


def slug(title: str) -> str:
    """A name of a file for a title."""
    return "-".join("".join(c if c.isalnum() and c.isascii() else " " for c in title).split()).lower()


def _pairs(settings: Mapping[str, str]) -> str:
    return ", ".join(f"`{key}` = `{value}`" for key, value in settings.items()) or "none"


def _of_measured(results: Mapping[str, Any], key: str) -> list[str]:
    """Returns the dates or commits of all rivals that were measured, which may be of several runs."""
    return sorted({str(rival.get(key) or results[key]) for rival in results["rivals"] if rival["turns"]}) or ["-"]


def _turns(rivals: Sequence[Mapping[str, Any]]) -> str:
    counts = sorted({len(rival["turns"]) for rival in rivals if rival["turns"]}) or [0]
    few, most = counts[0], counts[-1]
    return f"{few} to {most} turns" if few < most else f"{most} turn{'s' * (most != 1)}"


def _loads(rivals: Sequence[Mapping[str, Any]]) -> str:
    loads = [turn["load"] for rival in rivals for turn in rival["turns"]]
    return f"{min(loads):.0f} to {max(loads):.0f}" if loads else "unknown"
