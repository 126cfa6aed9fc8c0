"""`branch`, `tag` and `rollback`: branches and tags of a table, and going back to an older snapshot."""

import click
import pyarrow as pa

from bucketline.state.commit.not_there import no_branch, no_tag
from bucketline.streaming.cli.arguments import duration, format_option, opened, table_arguments, version
from bucketline.streaming.cli.program import program
from bucketline.streaming.cli.rows import Format, print_table


@program.group(short_help="Creates, lists, renames, deletes and fast-forwards branches.")
def branch() -> None:
    """Creates, lists, renames and deletes branches, and makes a branch the table's own history.

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
    """Lists the branches except main."""
    print_table(opened(path, option).system("branches"), form)


@branch.command("delete")
@table_arguments
@click.argument("name")
def delete_branch(path: str, option: tuple[str, ...], name: str) -> None:
    """Deletes a branch. `bucketline orphans` finds the files that only this branch used."""
    table = opened(path, option)
    if not table.delete_branch(name):
        raise no_branch(name, table.branches())
    click.echo(f"branch {name} deleted")


@branch.command("rename")
@table_arguments
@click.argument("name")
@click.argument("to")
def rename_branch(path: str, option: tuple[str, ...], name: str, to: str) -> None:
    """Gives a branch another name. No program may be writing to the branch."""
    opened(path, option).rename_branch(name, to)
    click.echo(f"branch {name} is now called {to}")


@branch.command("fast-forward")
@table_arguments
@click.argument("name")
def fast_forward(path: str, option: tuple[str, ...], name: str) -> None:
    """Makes the branch's history the history of the table itself. No program may be writing to the table."""
    click.echo(f"snapshot {opened(path, option).fast_forward(name)}")


@program.group(short_help="Creates, lists, moves, renames and deletes tags.")
def tag() -> None:
    """Creates, lists, moves, renames and deletes tags: names that keep a snapshot and its files."""


@tag.command("create", short_help="Gives a snapshot a name, and keeps its files.")
@table_arguments
@click.argument("name")
@click.option("--snapshot", type=click.IntRange(min=1), metavar="N", help="The snapshot's id; by default the newest.")
@click.option(
    "--retain-time",
    metavar="DURATION",
    help="How long the tag is kept, for example '7 d'; by default the table's options decide.",
)
def create_tag(path: str, option: tuple[str, ...], name: str, snapshot: int | None, retain_time: str | None) -> None:
    """Gives a snapshot a name, and keeps its files until the tag is deleted or its time is over."""
    opened(path, option).create_tag(
        name, snapshot, None if retain_time is None else duration(retain_time, "--retain-time")
    )
    click.echo(f"tag {name} created")


@tag.command("list")
@table_arguments
@format_option
def list_tags(path: str, option: tuple[str, ...], form: Format) -> None:
    """Lists the tags, in the order of their snapshots."""
    rows = opened(path, option).tags()
    at = rows.schema.get_field_index("time_retained")
    print_table(rows.set_column(at, "time_retained", rows["time_retained"].cast(pa.string())), form)


@tag.command("delete")
@table_arguments
@click.argument("name")
def delete_tag(path: str, option: tuple[str, ...], name: str) -> None:
    """Deletes a tag, and the files that only this tag kept."""
    table = opened(path, option)
    if not table.delete_tag(name):
        raise no_tag(name, table.tags()["tag_name"].to_pylist())
    click.echo(f"tag {name} deleted")


@tag.command("rename")
@table_arguments
@click.argument("name")
@click.argument("to")
def rename_tag(path: str, option: tuple[str, ...], name: str, to: str) -> None:
    """Gives a tag another name."""
    opened(path, option).rename_tag(name, to)
    click.echo(f"tag {name} is now called {to}")


@tag.command("replace", short_help="Moves a tag to another snapshot.")
@table_arguments
@click.argument("name")
@click.option("--snapshot", type=click.IntRange(min=1), metavar="N", help="The snapshot's id; by default the newest.")
@click.option(
    "--retain-time",
    metavar="DURATION",
    help="How long the tag is kept, for example '7 d'; by default the table's options decide.",
)
def replace_tag(path: str, option: tuple[str, ...], name: str, snapshot: int | None, retain_time: str | None) -> None:
    """Moves a tag to another snapshot. `bucketline orphans` finds the files that only the former snapshot needed."""
    retained = None if retain_time is None else duration(retain_time, "--retain-time")
    opened(path, option).replace_tag(name, snapshot, retained)
    click.echo(f"tag {name} replaced")


@tag.command("expire", short_help="Deletes tags whose time is over.")
@table_arguments
@click.option(
    "--older-than",
    metavar="DURATION",
    help="Also delete tags that were created longer ago than this, for example '30 d'.",
)
def expire_tags(path: str, option: tuple[str, ...], older_than: str | None) -> None:
    """Deletes the tags whose time is over, and the files that only these tags kept."""
    ended = opened(path, option).expire_tags(None if older_than is None else duration(older_than, "--older-than"))
    for name in ended:
        click.echo(f"tag {name} deleted")
    if not ended:
        click.echo("no tag has expired")


@program.command(short_help="Makes an older snapshot the newest again.")
@table_arguments
@click.argument("target")
def rollback(path: str, option: tuple[str, ...], target: str) -> None:
    """Makes a snapshot, given by its id or a tag, the newest again. Newer snapshots and their tags are removed. The tag
    that records the progress of a stream moves back to this snapshot.

    No program may be writing to the table.
    """
    click.echo(f"snapshot {opened(path, option).rollback_to(version(target))}")
