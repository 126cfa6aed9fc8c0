"""`branch`, `tag` and `rollback`: names of a table's histories and snapshots, and the way back to one."""

import click
import pyarrow as pa

from bucketline.streaming.cli.arguments import duration, format_option, opened, table_arguments, version
from bucketline.streaming.cli.program import program
from bucketline.streaming.cli.rows import Format, print_table


@program.group(short_help="Creates, lists, deletes and fast-forwards branches.")
def branch() -> None:
    """Creates, lists and deletes branches, and makes one the table's own history.

    Other commands read and write a branch with -o branch=NAME.
    """


@branch.command("create")
@table_arguments
@click.argument("name")
@click.option("--tag", metavar="TAG", help="Begin at this tag; by default the branch is empty.")
def create_branch(path: str, option: tuple[str, ...], name: str, tag: str | None) -> None:
    """Creates a branch: empty, or at a tag."""
    opened(path, option).create_branch(name, tag)
    click.echo(f"branch {name} created")


@branch.command("list")
@table_arguments
@format_option
def list_branches(path: str, option: tuple[str, ...], form: Format) -> None:
    """Lists the branches beside main."""
    print_table(opened(path, option).system("branches"), form)


@branch.command("delete")
@table_arguments
@click.argument("name")
def delete_branch(path: str, option: tuple[str, ...], name: str) -> None:
    """Deletes a branch. `bucketline orphans` finds the files that only it used."""
    is_gone = opened(path, option).delete_branch(name)
    click.echo(f"branch {name} deleted" if is_gone else f"there is no branch {name}")


@branch.command("fast-forward")
@table_arguments
@click.argument("name")
def fast_forward(path: str, option: tuple[str, ...], name: str) -> None:
    """Makes the branch's history that of the table itself. No writer of the table may be active."""
    click.echo(f"snapshot {opened(path, option).fast_forward(name)}")


@program.group(short_help="Creates, lists and deletes tags.")
def tag() -> None:
    """Creates, lists and deletes tags: names that keep a snapshot and its files."""


@tag.command("create", short_help="Names a snapshot, and keeps its files.")
@table_arguments
@click.argument("name")
@click.option("--snapshot", type=click.IntRange(min=1), metavar="N", help="The snapshot's id; by default the newest.")
@click.option(
    "--retain-time", metavar="DURATION", help="How long the tag lives, as '7 d'; by default as the table says."
)
def create_tag(path: str, option: tuple[str, ...], name: str, snapshot: int | None, retain_time: str | None) -> None:
    """Names a snapshot, and keeps its files until the tag is deleted or its time is over."""
    opened(path, option).create_tag(
        name, snapshot, None if retain_time is None else duration(retain_time, "--retain-time")
    )
    click.echo(f"tag {name} created")


@tag.command("list")
@table_arguments
@format_option
def list_tags(path: str, option: tuple[str, ...], form: Format) -> None:
    """Lists the tags, by snapshot."""
    rows = opened(path, option).tags()
    at = rows.schema.get_field_index("time_retained")
    print_table(rows.set_column(at, "time_retained", rows["time_retained"].cast(pa.string())), form)


@tag.command("delete")
@table_arguments
@click.argument("name")
def delete_tag(path: str, option: tuple[str, ...], name: str) -> None:
    """Deletes a tag, and the files that only it kept."""
    is_gone = opened(path, option).delete_tag(name)
    click.echo(f"tag {name} deleted" if is_gone else f"there is no tag {name}")


@program.command(short_help="Makes an older snapshot the newest again.")
@table_arguments
@click.argument("target")
def rollback(path: str, option: tuple[str, ...], target: str) -> None:
    """Makes a snapshot, by its id or a tag, the newest again. Newer snapshots and their tags are removed;
    the tag of a stream moves back.

    No writer of the table may be active.
    """
    click.echo(f"snapshot {opened(path, option).rollback_to(version(target))}")
