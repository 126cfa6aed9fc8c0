"""Arguments that several commands share: the table's PATH, read options, storage options, `--format`, lists of
names.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import click

from bucketline.conf.catalog_options import WAREHOUSE
from bucketline.conf.durations import timedelta_of
from bucketline.conf.errors import OptionError
from bucketline.conf.job_file.references import has_reference, looked_up
from bucketline.conf.option import parse_given_duration, whole_number
from bucketline.conf.resolve import read_assignments, read_settings_file
from bucketline.conf.secrets import keep_looked_up, mask
from bucketline.state.store.catalog.versions import Version
from bucketline.state.store.table.table import Table, open_table
from bucketline.state.store.warehouse.catalog import Catalog, catalog
from bucketline.state.store.warehouse.metastore import TableAddress
from bucketline.streaming.cli.program import program
from bucketline.streaming.cli.rows import Format

Command = TypeVar("Command", bound=Callable[..., Any])

_STORAGE = "bucketline.storage"
_CATALOG = "bucketline.catalog"


def table_arguments(command: Command) -> Command:
    """Adds the argument `PATH` and the options for reading, storage and catalog to a command. The function of the
    command gets their values as its arguments `path` and `option`, and passes them to `opened`.
    """
    return click.argument("path")(_read_arguments(command))


def table_or_job_arguments(command: Command) -> Command:
    """Adds the same arguments as `table_arguments`, but the user may leave out PATH."""
    return click.argument("path", required=False)(_read_arguments(command))


def _read_arguments(command: Command) -> Command:
    command = click.option(
        "-o",
        "--option",
        metavar="KEY=VALUE",
        multiple=True,
        help="Read option, for example branch=test; repeatable.",
    )(command)
    return storage_arguments(command)


def storage_arguments(command: Command) -> Command:
    """Adds `--storage`, `--warehouse`, `--catalog` and the options that take files of such settings. The command reads
    the settings with `given_storage` and `given_catalog`.
    """
    command = _settings_options(
        command,
        _CATALOG,
        "--catalog",
        "Option of the catalog, for example metastore=jdbc; tables are then given by name; repeatable.",
    )
    command = click.option(
        "--warehouse",
        metavar="DIR",
        expose_value=False,
        callback=lambda context, parameter, path: _keep(
            context, _CATALOG, "warehouse", {} if path is None else {WAREHOUSE.key: path}
        ),
        help="Folder or URI with databases; tables are then given by name, for example shop.orders.",
    )(command)
    return _settings_options(
        command, _STORAGE, "--storage", "Storage option, for example s3.endpoint=http://localhost:9000; repeatable."
    )


def given_storage() -> dict[str, str]:
    """Returns the storage options of the running command. Options on the command line override options from a file."""
    return _given(_STORAGE)


def given_catalog() -> Catalog | None:
    """Returns the catalog of `--warehouse` or `--catalog`. Returns None if the command got neither; the user then gives
    tables by their paths.
    """
    settings = _given(_CATALOG)
    return catalog(settings, given_storage()) if settings else None


def given_place_arguments() -> str:
    """Returns the arguments `--warehouse`, `--catalog` and `--storage` of the running command as the user could type
    them.

    Secrets are masked. Each argument has a space before it.
    """
    meta = click.get_current_context().meta
    words = [f"--warehouse {shlex.quote(path)}" for path in meta.get(_CATALOG, {}).get("warehouse", {}).values()]
    for kind, name in ((_CATALOG, "--catalog"), (_STORAGE, "--storage")):
        settings: dict[str, dict[str, str]] = meta.get(kind, {})
        for key, text in {**settings.get("file", {}), **settings.get("line", {})}.items():
            words.append(f"{name} {shlex.quote(f'{key}={mask(key, text)}')}")
    return "".join(f" {word}" for word in words)


def given_place(path: str, options: Mapping[str, str]) -> tuple[TableAddress, dict[str, str]]:
    """Returns the address of the table that PATH names, and the options to open the table with."""
    named_catalog = given_catalog()
    if named_catalog is None:
        return TableAddress(path, given_storage()), dict(options)
    return named_catalog.place(path), named_catalog.read_options(path, options)


def format_option(command: Command) -> Command:
    """Adds the option `--format`; the command gets its value as the argument `form`."""
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
    """Opens the table that the arguments name, by its path or by its name in the catalog. `option` holds `key=value`
    strings.
    """
    named_catalog, options = given_catalog(), assignments(option, "-o")
    if named_catalog is not None:
        return named_catalog.table(path, options=options)
    return open_table(path, options=options, storage_options=given_storage())


def assignments(texts: Sequence[str], name: str) -> dict[str, str]:
    """Returns `key=value` strings as a mapping. Raises a usage error that contains `name` for any other string."""
    try:
        return {key: setting.text for key, setting in read_assignments(texts).items()}
    except OptionError as e:
        raise click.BadParameter(e.message, param_hint=name) from e


def names(texts: Sequence[str]) -> tuple[str, ...]:
    """Returns the names in comma-separated lists, in order."""
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())


def duration(text: str, name: str) -> timedelta:
    """Parses a duration with its unit, such as '12 h'. Raises a usage error that contains `name` for any other text."""
    try:
        return timedelta_of(parse_given_duration(text))
    except OptionError as e:
        raise click.BadParameter(str(e), param_hint=name) from e


def version(text: str) -> Version:
    """Parses a snapshot's id or the name of a tag."""
    return whole_number(text) if text.isascii() and text.isdigit() else text


def partition_option(command: Command) -> Command:
    """Adds `--partition`, which can be repeated. The command gets `partitions` in the form that `choose_partitions`
    takes, or None if the option is not given.
    """
    return click.option(
        "--partition",
        "partitions",
        metavar="K=V[,K2=V2]",
        multiple=True,
        callback=lambda context, parameter, texts: [_choice(t) for t in texts] or None,
        help="Only this partition, for example dt=2026-01-01; repeatable.",
    )(command)


def _settings_options(command: Command, kind: str, name: str, text: str) -> Command:
    """Adds the option `name`, which takes KEY=VALUE, and an option that takes a file with KEY=VALUE settings. `kind` is
    the name under which the command finds the settings, and `text` is the help of the option.
    """
    command = click.option(
        f"{name}-file",
        metavar="F.yaml",
        expose_value=False,
        callback=lambda context, parameter, path: _keep(context, kind, "file", {} if path is None else _file(path)),
        help=f"File with values for {name}; keeps secrets off the command line.",
    )(command)
    return click.option(
        name,
        metavar="KEY=VALUE",
        multiple=True,
        expose_value=False,
        callback=lambda context, parameter, texts: _keep(context, kind, "line", assignments(texts, name)),
        help=text,
    )(command)


def _keep(context: click.Context, kind: str, origin: str, settings: dict[str, str]) -> None:
    context.meta.setdefault(kind, {})[origin] = settings
    program.keep_secret(settings)


def _given(kind: str) -> dict[str, str]:
    settings: dict[str, dict[str, str]] = click.get_current_context().meta.get(kind, {})
    return {**settings.get("file", {}), **settings.get("warehouse", {}), **settings.get("line", {})}


def _file(path: str) -> dict[str, str]:
    """Reads the settings of a file. References such as environment variables are replaced by their values."""
    found = {key: setting.text for key, setting in read_settings_file(path).items()}
    for key, text in found.items():
        found[key] = looked_up(key, text)
        if has_reference(text):
            keep_looked_up(found[key])
    return found


def _choice(text: str) -> dict[str, object]:
    return dict(assignments([part for part in text.split(",") if part.strip()], "--partition"))
