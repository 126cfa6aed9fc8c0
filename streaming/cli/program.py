"""`bucketline`: the commands, their exit codes and error lines.

Exit codes: 0 done; 2 usage; 3 a wrong setting, or a table, branch or user that does not exist; 4 a conflict, an unknown
outcome, or a checkpoint that does not fit; 1 anything else. An error is printed as one line, `error [code]: message`,
on the standard error, followed by a line `remedy: ...` if a remedy is known. A traceback is only printed with --debug
or BUCKETLINE_DEBUG.
"""

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import click

from bucketline.conf.errors import BucketlineError, FilesTooYoungError, OptionError
from bucketline.conf.secrets import mask_text, secret_values
from bucketline.state.errors import (
    BranchNotFoundError,
    CommitConflictError,
    CommitOutcomeUnknownError,
    CorruptFileError,
    DatabaseNotFoundError,
    FilesGoneError,
    IndexStateError,
    MissingSnapshotError,
    SchemaMismatchError,
    StorageError,
    TableNotFoundError,
    UserNotFoundError,
    VersionNotFoundError,
)
from bucketline.streaming.batch.failure import SparkFailedError, SparkLostError, error_within
from bucketline.streaming.batch.recover import CheckpointMismatchError
from bucketline.streaming.cli.modules import MODULE_OF_COMMAND
from bucketline.streaming.cli.texts import printable
from bucketline.streaming.cli.version import version_text
from bucketline.streaming.decode.avro.registry_errors import RegistryDownError, RegistryError

DONE, FAILED, USAGE, CONFIGURATION, CONFLICT = 0, 1, 2, 3, 4

DEBUG_VARIABLE = "BUCKETLINE_DEBUG"

_EXIT_CODES: tuple[tuple[type[BucketlineError], int], ...] = (
    (VersionNotFoundError, FAILED),
    (OptionError, CONFIGURATION),
    (TableNotFoundError, CONFIGURATION),
    (DatabaseNotFoundError, CONFIGURATION),
    (BranchNotFoundError, CONFIGURATION),
    (UserNotFoundError, CONFIGURATION),
    (CommitConflictError, CONFLICT),
    (CommitOutcomeUnknownError, CONFLICT),
    (CheckpointMismatchError, CONFLICT),
)
_REMEDIES = {
    TableNotFoundError.code: "check the path, or create the table with `bucketline create`",
    DatabaseNotFoundError.code: "check the name and the warehouse, or create the database (Catalog.create_database)",
    BranchNotFoundError.code: "choose another branch with -o branch=NAME; `bucketline branch list PATH` shows the "
    "branches",
    UserNotFoundError.code: "choose another commit user with --user, or leave --user out for the newest batch",
    FilesTooYoungError.code: "wait until the files are a day old; or, if nobody writes to the table at all, pass "
    "--no-writers (no_writers=True in Python)",
    SchemaMismatchError.code: "`bucketline schema PATH` shows the columns of the table",
    CommitConflictError.code: "nothing was lost; run the command again: it starts from the table's newest snapshot",
    FilesGoneError.code: "nothing was committed; write the rows again, and run `bucketline orphans` less often",
    CommitOutcomeUnknownError.code: "delete no file; when the storage answers again, see with `bucketline snapshots "
    "PATH` "
    "whether "
    "the commit is there",
    CorruptFileError.code: "keep all files as they are; `bucketline doctor PATH` lists what else is broken",
    MissingSnapshotError.code: "keep all files as they are, and look for a copy of the snapshot files first",
    SparkFailedError.code: f"start the job again, which repeats the batch; --debug (or {DEBUG_VARIABLE}=1) shows "
    "Spark's stack traces",
    SparkLostError.code: "start the job again, which repeats the batch; give Spark more memory if it ran out",
    RegistryError.code: "check source.registry in the job file; nothing of the batch was written",
    RegistryDownError.code: "start the job again when the registry answers; the job then repeats the batch. "
    "source.registry.wait sets how long a batch waits",
    IndexStateError.code: "remove the folder of the local index; the next batch builds the index again from the table",
}
_MALFORMED_REMEDY = (
    "correct the file or move it away, then start the job again; with source.format = text and source.decode = json, "
    "bad lines become bad records, which need not stop the job"
)
_RETRY_REMEDY = "the failure may be temporary: run the command again"
_MISSING_REMEDY = (
    "check the path; if it is a file of a table, run the command again, because expiry may have just removed the file. "
    "If the error comes again, `bucketline doctor PATH` says what is missing"
)
_STORAGE_REMEDY = "check the path, permissions, credentials and free space"
_MESSAGE_SIGNS = 2000
_BUG_REMEDY = (
    f"this looks like a bug in bucketline; run the command again with --debug (or {DEBUG_VARIABLE}=1) and report it"
)


class Program(click.Group):
    """A group of commands. A command ends with an exit code and, after an error, with a line that says what is
    wrong. The module of a command is loaded when the command is needed.
    """

    debug = False
    secrets: tuple[str, ...] = ()
    """Secret values in the command's arguments, which are never shown."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(MODULE_OF_COMMAND)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in MODULE_OF_COMMAND:
            import_module(MODULE_OF_COMMAND[cmd_name])
        else:
            self.all_commands()  # All commands are needed, because the error names the most similar one.
        return super().get_command(ctx, cmd_name)

    def all_commands(self) -> Mapping[str, click.Command]:
        """Returns all commands by name."""
        for module in MODULE_OF_COMMAND.values():
            import_module(module)
        return self.commands

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs a command and exits. `prog_name` and `standalone_mode` are only there because click's method has them;
        they have no effect.
        """
        self.debug = os.environ.get(DEBUG_VARIABLE, "") not in ("", "0", "false")
        self.secrets = ()
        try:
            code = super().main(args, "bucketline", complete_var, standalone_mode=False, **extra)
        except click.ClickException as e:
            _say("USAGE", e.format_message(), _usage_remedy(e))
            code = USAGE
        except click.Abort:
            _say("STOPPED", "the command was interrupted", None)
            code = FAILED
        except Exception as e:  # noqa: BLE001 -- the outermost caller: no error may end as a traceback
            self._trace()
            ours = None if isinstance(e, BucketlineError | OSError) else error_within(str(e))
            code = report_error(ours or e)
        sys.exit(code if isinstance(code, int) else DONE)

    def _trace(self) -> None:
        if self.debug:
            click.echo(mask_text(traceback.format_exc(), self.secrets), err=True)

    def keep_secret(self, settings: Mapping[str, str]) -> None:
        """Masks the secrets among these settings in all later messages."""
        self.secrets = (*self.secrets, *secret_values(settings))


def _show_version(context: click.Context, parameter: click.Parameter, is_asked: bool) -> None:
    del parameter
    if is_asked and not context.resilient_parsing:
        click.echo(version_text())
        context.exit()


@click.group(
    "bucketline",
    cls=Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option("--debug", is_flag=True, help=f"Show tracebacks of errors; {DEBUG_VARIABLE}=1 does the same.")
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the versions of bucketline, Python and Spark.",
)
@click.pass_context
def program(context: click.Context, debug: bool) -> None:
    """Streams sources into Apache Paimon tables with Spark, and maintains these tables.

    PATH is a table's own directory, <warehouse>/<db>.db/<table>, as a local path or a URI. Commands that print rows
    take --format table, json (one object per line) or csv.
    """
    program.debug = program.debug or debug
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(USAGE)


def report_error(error: Exception) -> int:
    """Prints what went wrong, and returns the exit code."""
    if isinstance(error, BucketlineError):
        _say(error.code, error.message, _remedy(error))
        return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), FAILED)
    if isinstance(error, OSError):
        _say(StorageError.code, str(error), _STORAGE_REMEDY)
    else:
        _say("INTERNAL", f"{type(error).__name__}: {error}", _BUG_REMEDY)
    return FAILED


def _remedy(error: BucketlineError) -> str | None:
    if isinstance(error, StorageError):
        if error.missing:
            return _MISSING_REMEDY
        return _RETRY_REMEDY if error.retryable else _STORAGE_REMEDY
    if isinstance(error, SparkFailedError) and error.malformed:
        return _MALFORMED_REMEDY
    return _REMEDIES.get(error.code)


def _usage_remedy(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"`{context.command_path if context else 'bucketline'} --help` shows the arguments"


def _say(code: str, message: str, remedy: str | None) -> None:
    line = printable(" ".join(mask_text(message, program.secrets).split()))
    click.echo(f"error [{code}]: {line[:_MESSAGE_SIGNS]}{'…' if len(line) > _MESSAGE_SIGNS else ''}", err=True)
    if remedy is not None:
        click.echo(f"remedy: {remedy}", err=True)
