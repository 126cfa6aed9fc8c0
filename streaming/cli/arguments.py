"""Arguments of several commands: the table's PATH, read options, storage options, `--format`, lists of names."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from bucketline.conf.errors import OptionError
from bucketline.conf.resolve import read_assignments, read_settings_file
from bucketline.state.store.table.table import Table, open_table
from bucketline.streaming.cli.program import program
from bucketline.streaming.cli.rows import Format

Command = TypeVar("Command", bound=Callable[..., Any])

_STORAGE = "bucketline.storage"


def table_arguments(command: Command) -> Command:
    """Adds `PATH`, read options and storage options; the command gets `path` and `option`, see `opened`."""
    command = click.option(
        "-o",
        "--option",
        metavar="KEY=VALUE",
        multiple=True,
        help="Read option, as branch=test; repeatable.",
    )(command)
    return click.argument("path")(storage_arguments(command))


def storage_arguments(command: Command) -> Command:
    """Adds `--storage` and `--storage-file`; the command reads them with `given_storage`."""
    command = click.option(
        "--storage-file",
        metavar="F.yaml",
        expose_value=False,
        callback=lambda context, parameter, path: _keep(context, "file", {} if path is None else _storage_file(path)),
        help="File with storage options; keeps secrets off the command line.",
    )(command)
    return click.option(
        "--storage",
        metavar="KEY=VALUE",
        multiple=True,
        expose_value=False,
        callback=lambda context, parameter, texts: _keep(context, "line", assignments(texts, "--storage")),
        help="Storage option, as s3.endpoint=http://localhost:9000; repeatable.",
    )(command)


def given_storage() -> dict[str, str]:
    """The storage options of the command that runs; those on the command line override those of the file."""
    found: dict[str, dict[str, str]] = click.get_current_context().meta.get(_STORAGE, {})
    return {**found.get("file", {}), **found.get("line", {})}


def format_option(command: Command) -> Command:
    """Adds `--format`; the command gets `form`."""
    return click.option(
        "--format",
        "form",
        type=click.Choice([f.value for f in Format]),
        default=Format.TABLE.value,
        show_default=True,
        callback=lambda context, parameter, value: Format(value),
        help="How rows are printed.",
    )(command)


def opened(path: str, option: Sequence[str]) -> Table:
    """The table that the arguments name."""
    return open_table(path, options=assignments(option, "-o"), storage_options=given_storage())


def assignments(texts: Sequence[str], name: str) -> dict[str, str]:
    """`key=value` texts as a mapping. Raises a usage error for any other text."""
    try:
        return {key: setting.text for key, setting in read_assignments(texts).items()}
    except OptionError as e:
        raise click.BadParameter(e.message, param_hint=name) from e


def names(texts: Sequence[str]) -> tuple[str, ...]:
    """The names in comma-separated lists, in order."""
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())


def partition_option(command: Command) -> Command:
    """Adds `--partition`, repeatable; the command gets `partitions` as `choose_partitions` takes them, or None."""
    return click.option(
        "--partition",
        "partitions",
        metavar="K=V[,K2=V2]",
        multiple=True,
        callback=lambda context, parameter, texts: [_choice(t) for t in texts] or None,
        help="Only this partition, as dt=2026-01-01; repeatable.",
    )(command)


def _keep(context: click.Context, origin: str, settings: dict[str, str]) -> None:
    context.meta.setdefault(_STORAGE, {})[origin] = settings
    program.keep_secret(settings)


def _storage_file(path: str) -> dict[str, str]:
    return {key: setting.text for key, setting in read_settings_file(path).items()}


def _choice(text: str) -> dict[str, object]:
    return dict(assignments([part for part in text.split(",") if part.strip()], "--partition"))
