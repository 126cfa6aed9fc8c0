"""What the README and the pages of `docs/` promise: Python runs; commands, settings, errors and files exist."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import click
import pytest

import bucketline
from bucketline.conf.async_options import ASYNC_OPTIONS
from bucketline.conf.errors import BucketlineError
from bucketline.conf.metrics_options import METRICS_OPTIONS
from bucketline.conf.option import Option
from bucketline.conf.plan_options import PLAN_OPTIONS
from bucketline.conf.resolve import read_settings, resolve_job
from bucketline.conf.sink_options import SINK_OPTIONS
from bucketline.conf.table.memory_options import BOUNDED
from bucketline.conf.table.other_options import RESTRICTED
from bucketline.conf.table.table_options import KNOWN_KEYS
from bucketline.state.store.table.table import open_table
from bucketline.streaming.batch.batch_metrics import (
    BUCKETS_BY_RUNS,
    COUNTERS,
    GAUGES,
    LAST_BATCH,
    PARKED,
    PARKED_UNTIL,
    SKIPPED_RECORDS,
    UNEXPECTED_ROWS,
)
from bucketline.streaming.batch.progress import BatchReport
from bucketline.streaming.cli.commands import program
from bucketline.streaming.cli.plan_commands import ITEMS, OPEN_ITEMS
from bucketline.streaming.job.kafka.partition_lag import PARTITION_BEHIND
from bucketline.streaming.job.start.needs import UP
from tests.support.pages.readme import DOCS, PAGES, README, blocks, cells, headings, make_demo, run, section

COMMAND = re.compile(r"(?<!import )\bbucketline ([a-z-]+)((?:[^`\n|\\)]|\\\n)*)")
PROSE = re.compile(r"```.*?```", re.DOTALL)
OPTIONS = DOCS / "options.md"
LONGEST_README = 340


def commands(page: Path) -> Iterator[tuple[str, str]]:
    """(command, what follows) wherever a page calls the program: in inline code and in lines of shell blocks."""
    text = page.read_text(encoding="utf-8")
    shell = [block.code for block in blocks("bash", page)]
    inline = re.findall(r"`([^`\n]+)`", PROSE.sub("", text))
    for code in (*shell, *inline):
        for found in COMMAND.finditer(code):
            yield found[1], found[2]


def test_the_readme_stays_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= LONGEST_README


def test_the_python_without_spark_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_demo(tmp_path)
    ours = [block for block in blocks("python") if not block.needs_spark and not block.needs_others]
    assert len(ours) >= 3
    names: dict[str, object] = {}
    run(ours, names)
    assert (tmp_path / "warehouse" / "shop.db" / "orders" / "snapshot").is_dir()


def test_the_cells_of_the_notebook_run_up_to_those_with_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_demo(tmp_path)
    found = cells()
    first = next(at for at, cell in enumerate(found) if cell.needs_spark)
    assert first >= 4
    names: dict[str, object] = {}
    run(found[:first], names)
    rows = open_table("demo/shop.db/orders").to_arrow(columns=["id", "status"]).to_pylist()
    assert {r["id"]: r["status"] for r in rows if r["id"] in (20, 43, 9000001)} == {20: "delivered", 9000001: "new"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_command_and_option_named_exists(page: Path) -> None:
    for name, rest in commands(page):
        command = program.all_commands().get(name)
        assert command is not None or name == "COMMAND", f"{page.name}: there is no command 'bucketline {name}'"
        known = {word for p in command.params if isinstance(p, click.Option) for word in p.opts} if command else set()
        for option in re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", rest):
            assert option in known, f"{page.name}: 'bucketline {name}' has no option {option}"


def test_every_command_is_listed() -> None:
    assert {name for name, _ in commands(DOCS / "commands.md")} == set(program.all_commands())


def test_every_option_of_ingest_is_listed() -> None:
    listed = " ".join(rest for name, rest in commands(DOCS / "commands.md") if name == "ingest")
    missing = [
        o for p in program.all_commands()["ingest"].params for o in p.opts if o not in listed and o != "--format"
    ]
    assert missing == []


@pytest.mark.parametrize("option", SINK_OPTIONS.values(), ids=lambda o: o.key)
def test_each_option_of_the_sink_is_listed_with_its_default(option: Option[Any]) -> None:
    table = section("Options of the sink", OPTIONS)
    row = re.search(rf"^\| `{re.escape(option.key)}` \| (.+?) \| .+ \|$", table, re.MULTILINE)
    assert row is not None, f"options.md does not list option {option.key}"
    if option.default is None:
        assert row[1] == "–"
    else:
        assert option.parse(row[1].strip("`")) == option.default


def test_no_option_of_the_sink_is_listed_that_does_not_exist() -> None:
    listed = re.findall(r"^\| `([^`]+)` \|", section("Options of the sink", OPTIONS), re.MULTILINE)
    assert listed == list(SINK_OPTIONS)


def test_no_option_of_plans_is_listed_that_does_not_exist() -> None:
    listed = re.findall(r"^\| `([^`]+)` \|", section("Options of compaction plans", OPTIONS), re.MULTILINE)
    assert listed == list(PLAN_OPTIONS)
    assert not KNOWN_KEYS & PLAN_OPTIONS.keys()


@pytest.mark.parametrize("option", PLAN_OPTIONS.values(), ids=lambda o: o.key)
def test_each_option_of_plans_is_listed_with_its_default(option: Option[Any]) -> None:
    table = section("Options of compaction plans", OPTIONS)
    row = re.search(rf"^\| `{re.escape(option.key)}` \| (.+?) \| .+ \|$", table, re.MULTILINE)
    assert row is not None, f"options.md does not list option {option.key}"
    assert row[1] == (f"`{option.shown()}`" if option.default is not None else "–")


@pytest.mark.parametrize(
    ("heading", "options"),
    [
        ("Options of compaction beside the batches", ASYNC_OPTIONS),
        ("Options of metrics", METRICS_OPTIONS),
    ],
)
def test_options_of_a_topic_are_listed_with_their_defaults(heading: str, options: Mapping[str, Option[Any]]) -> None:
    listed = re.findall(r"^\| `([^`]+)` \| (.+?) \| .+ \|$", section(heading, OPTIONS), re.MULTILINE)
    assert listed == [(k, f"`{o.shown()}`" if o.default is not None else "–") for k, o in options.items()]


def test_every_metric_is_listed() -> None:
    text = section("Metrics", DOCS / "monitoring.md")
    own = [
        *(m for m, _ in (*COUNTERS, *GAUGES)),
        BUCKETS_BY_RUNS,
        LAST_BATCH,
        PARKED,
        PARKED_UNTIL,
        SKIPPED_RECORDS,
        UNEXPECTED_ROWS,
        ITEMS,
        OPEN_ITEMS,
        UP,
        PARTITION_BEHIND,
    ]
    assert sorted(re.findall(r"`(bucketline_\w+)`", text)) == sorted(m.shown_name for m in own)


def test_every_refused_table_option_is_listed_with_the_value_that_passes() -> None:
    refused = section("Table options that are refused", OPTIONS)
    listed = dict(re.findall(r"`([a-z0-9.-]+)`(?: \(except `(\w+)`\))?", refused))
    for key, found in RESTRICTED.items():
        assert key in listed, f"options.md does not say that {key} is refused"
        assert listed[key] == (found.accepted[0] if found.accepted else ""), key
    assert not [key for key in listed if key in KNOWN_KEYS and key not in RESTRICTED]


@pytest.mark.parametrize("key", BOUNDED)
def test_each_option_without_effect_is_listed_with_what_bounds_memory_instead(key: str) -> None:
    table = section("Table options without effect", OPTIONS)
    row = re.search(rf"^\| .*`{re.escape(key)}`.* \| (.+) \|$", table, re.MULTILINE)
    assert row is not None, f"options.md does not list {key}"
    for name in re.findall(r"`([a-z-]+)`", row[1]):
        assert name in BOUNDED[key].instead


def _errors() -> Iterator[type[BucketlineError]]:
    for module in walk_packages(bucketline.__path__, "bucketline."):
        if "__main__" not in module.name and ".submit" not in module.name:
            import_module(module.name)
    waiting = [BucketlineError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__module__.startswith("bucketline."):
            yield kind


def test_each_code_of_an_error_is_listed_with_its_public_class() -> None:
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    for kind in set(_errors()) - {BucketlineError}:
        row = re.search(rf"^\|.*`{kind.code}`.*$", text, re.MULTILINE)
        assert row is not None, f"errors.md does not list {kind.code}"
        if kind.__name__ in bucketline.__all__:
            assert any(f"`{parent.__name__}`" in row[0] for parent in kind.__mro__ if parent is not BucketlineError)


def test_each_field_of_the_report_of_a_batch_is_listed() -> None:
    first_columns = re.findall(r"^\|([^|]*)\|", (DOCS / "monitoring.md").read_text(encoding="utf-8"), re.MULTILINE)
    listed = re.findall(r"`(?!bucketline_)(\w+)`", "".join(first_columns))
    assert sorted(listed) == sorted(f.name for f in fields(BatchReport))


def test_the_job_file_is_one() -> None:
    (job,) = blocks("yaml")
    config = resolve_job(read_settings(job.code, name="README.yaml"))
    assert config.create is not None and config.create.primary_key == ("id", "dt")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https:"):
            continue
        file, _, heading = target.partition("#")
        there = page.parent / file if file else page
        assert there.exists(), target
        assert not heading or heading in headings(there), target


def test_the_index_of_the_docs_leads_to_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if f"]({page.name}" not in index and page.name != "README.md"] == []


def test_the_glossary_has_at_most_forty_words_in_order_each_once() -> None:
    words = re.findall(r"^\| (.+?) \| ", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)[1:]
    assert len(words) <= 40
    assert words == sorted(set(words), key=str.lower)
