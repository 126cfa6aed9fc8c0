"""What several commands take: the table's PATH, `-o key=value`, `--format`, lists of names."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from bucketline.conf.errors import OptionError
from bucketline.conf.resolve import read_assignments
from bucketline.state.store.table import Table, open_table
from bucketline.streaming.cli.rows import Format

Command = TypeVar("Command", bound=Callable[..., Any])


def table_arguments(command: Command) -> Command:
    """Adds `PATH` and storage options; the command is given `path` and `option`, see `opened`."""
    command = click.option(
        "-o",
        "--option",
        metavar="KEY=VALUE",
        multiple=True,
        help="Option of storage or reading, as s3.endpoint.",
    )(command)
    return click.argument("path")(command)


def format_option(command: Command) -> Command:
    """Adds `--format`; the command is given `form`."""
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
    return open_table(path, options=assignments(option, "-o"))


def assignments(texts: Sequence[str], name: str) -> dict[str, str]:
    """`key=value` texts as a mapping. Raises a usage error for a text that is none."""
    try:
        return {key: setting.text for key, setting in read_assignments(texts).items()}
    except OptionError as e:
        raise click.BadParameter(e.message, param_hint=name) from e


def names(texts: Sequence[str]) -> tuple[str, ...]:
    """The names in comma-separated lists, in order."""
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())


def partition_option(command: Command) -> Command:
    """Adds `--partition`, repeatable; the command is given `partitions` as `choose_partitions` takes them, or None."""
    return click.option(
        "--partition",
        "partitions",
        metavar="K=V[,K2=V2]",
        multiple=True,
        callback=lambda context, parameter, texts: [_choice(t) for t in texts] or None,
        help="Only this partition, values as they are printed; repeatable.",
    )(command)


def _choice(text: str) -> dict[str, object]:
    return dict(assignments([part for part in text.split(",") if part.strip()], "--partition"))
