"""What the README promises: its Python runs, and the commands, settings and files it names are there."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from bucketline.conf.memory_options import BOUNDED
from bucketline.conf.option import Option
from bucketline.conf.other_options import RESTRICTED
from bucketline.conf.resolve import read_settings, resolve_job
from bucketline.conf.sink_options import SINK_OPTIONS
from bucketline.conf.table_options import KNOWN_KEYS
from bucketline.streaming.cli.commands import program
from tests.support.readme import README, blocks, run, section

ROOT = README.parent
COMMAND = re.compile(r"\bbucketline ([a-z-]+)((?:[^`\n|\\)]|\\\n)*)")
PROSE = re.compile(r"```.*?```", re.DOTALL)


def commands() -> Iterator[tuple[str, str]]:
    """(command, what follows) wherever the README calls the program: in inline code and in lines of shell blocks."""
    text = README.read_text(encoding="utf-8")
    shell = [block.code for block in blocks("bash")]
    inline = re.findall(r"`([^`\n]+)`", PROSE.sub("", text))
    for code in (*shell, *inline):
        for found in COMMAND.finditer(code):
            yield found[1], found[2]


def test_the_python_without_spark_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ours = [block for block in blocks("python") if not block.needs_spark and not block.needs_others]
    assert len(ours) >= 3
    names: dict[str, object] = {}
    run(ours, names)
    assert (tmp_path / "warehouse" / "shop.db" / "orders" / "snapshot").is_dir()


def test_every_command_and_option_named_exists_and_every_command_is_named() -> None:
    named = set()
    for name, rest in commands():
        command = program.commands.get(name)
        assert command is not None, f"README.md: there is no command 'bucketline {name}'"
        known = {word for p in command.params if isinstance(p, click.Option) for word in p.opts}
        for option in re.findall(r"(?<![\w-])(--?[a-z][a-z-]*)", rest):
            assert option in known, f"README.md: 'bucketline {name}' has no option {option}"
        named.add(name)
    assert named == set(program.commands)


def test_every_option_of_ingest_is_told() -> None:
    told = " ".join(rest for name, rest in commands() if name == "ingest")
    missing = [o for p in program.commands["ingest"].params for o in p.opts if o not in told and o != "--format"]
    assert missing == []


@pytest.mark.parametrize("option", SINK_OPTIONS.values(), ids=lambda o: o.key)
def test_each_option_of_the_sink_is_told_with_its_default(option: Option[Any]) -> None:
    row = re.search(rf"^\| `{re.escape(option.key)}` \| (.+?) \| .+ \|$", section("Options of the sink"), re.MULTILINE)
    assert row is not None, f"README.md does not tell option {option.key}"
    if option.default is None:
        assert row[1] == "–"
    else:
        assert option.parse(row[1].strip("`")) == option.default


def test_no_option_of_the_sink_is_told_that_is_not_there() -> None:
    told = re.findall(r"^\| `([^`]+)` \|", section("Options of the sink"), re.MULTILINE)
    assert told == list(SINK_OPTIONS)


def test_every_refused_table_option_is_told_with_what_passes() -> None:
    told = dict(re.findall(r"`([a-z0-9.-]+)`(?: \(but `(\w+)`\))?", section("Limits")))
    for key, found in RESTRICTED.items():
        assert key in told, f"README.md does not say that {key} is refused"
        assert told[key] == (found.accepted[0] if found.accepted else ""), key
    assert not [key for key in told if key in KNOWN_KEYS and "." in key and told[key] and key not in RESTRICTED]


@pytest.mark.parametrize("key", BOUNDED)
def test_each_option_without_effect_is_told_with_what_bounds_memory_instead(key: str) -> None:
    row = re.search(rf"^  \| .*`{re.escape(key)}`.* \| (.+) \|$", section("Limits"), re.MULTILINE)
    assert row is not None, f"README.md does not tell {key}"
    for name in re.findall(r"`([a-z-]+)`", row[1]):
        assert name in BOUNDED[key].instead


def test_the_job_file_is_one() -> None:
    (job,) = blocks("yaml")
    config = resolve_job(read_settings(job.code, name="README.yaml"))
    assert config.create is not None and config.create.primary_key == ("id",)


def test_links_lead_to_files_and_headings() -> None:
    text = README.read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^##+ (.+)$", text, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in headings, target
        elif not target.startswith("https:"):
            assert (ROOT / target).exists(), target
