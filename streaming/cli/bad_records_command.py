"""`bad-records`: shows the bad records of a job, a folder or a table, and replays them."""

import click
import pyarrow as pa
import pyarrow.compute as pc

from bucketline.conf.errors import OptionError
from bucketline.conf.job import JobConfig
from bucketline.conf.job_file.references import has_reference
from bucketline.conf.resolve import look_up, read_assignments, read_settings_file, resolve_jobs
from bucketline.state.store.catalog.schemas import Schemas
from bucketline.state.store.storage.file_io import file_io_for
from bucketline.state.types.if_else import if_else
from bucketline.streaming.bad_records.folder import Folder
from bucketline.streaming.bad_records.place import BadRecordsPlace
from bucketline.streaming.bad_records.rejects_table import RejectsTable
from bucketline.streaming.bad_records.stored import stored_in
from bucketline.streaming.cli.arguments import format_option, given_place, storage_arguments
from bucketline.streaming.cli.program import program
from bucketline.streaming.cli.rows import Format, print_table
from bucketline.streaming.cli.spark_side import spark_module
from bucketline.streaming.job.bad_place import has_place, places_of, ready_place
from bucketline.streaming.job.ending import process_ending, signals_to
from bucketline.streaming.log import log_to_standard_error

_ABOUT = r"^(?:field|expectation) (?P<about>[^:]+): |^(?P<check>where|expect\.[^:]+): "
_SHOWN_BYTES = 60


@program.command(name="bad-records", short_help="Counts bad records by reason, and replays them.")
@click.argument("path", required=False)
@click.option("--conf-file", metavar="F", help="The job whose bad records are shown: .yaml, .json or .properties.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Overrides the job file; repeatable.")
@click.option("--replay", is_flag=True, help="Decode and write the bad records again, each once; needs --conf-file.")
@storage_arguments
@format_option
def bad_records(path: str | None, conf_file: str | None, settings: tuple[str, ...], replay: bool, form: Format) -> None:
    """Prints for each reason how many bad records there are, and the first of them. The records belong to a job, or are
    in a folder or table at PATH.

    With --replay the job decodes and writes the bad records again, in batches of their own. Records that are still bad
    wait for the next replay. If the table has no sequence.field, a replayed record replaces the row of its key, even if
    that row is newer.
    """
    if (path is None) == (conf_file is None):
        raise click.UsageError("give PATH, or --conf-file")
    if conf_file is None:
        assert path is not None, "one of the two is given"
        if replay or settings:
            raise click.UsageError("--replay and --set need --conf-file")
        print_table(_counts(_stored(_place_at(path))), form)
        return
    layers = read_settings_file(conf_file), read_assignments(settings)
    for layer in layers:
        program.keep_secret({key: s.text for key, s in layer.items() if not has_reference(s.text)})
    config = resolve_jobs(look_up(*layers))
    program.keep_secret({key: setting.text for key, setting in config.settings.items()})
    named = [config] if isinstance(config, JobConfig) else places_of(config)
    there = [one for one in named if has_place(one)]
    if named and not there:
        raise OptionError(
            f"there is no table {named[0].bad_records.table} yet, so there are no bad records: the job "
            "creates the table when it starts",
            key="bad-records.table",
        )
    in_topics = any(one.bad_records.topic is not None for one in there)
    if not replay and not in_topics:
        print_table(_counts(*[_stored(ready_place(one, {})) for one in there] or [_stored(None)]), form)
        return
    log_to_standard_error()
    ending = process_ending()
    with signals_to(ending):
        if not replay:
            print_table(_counts(spark_module("job.stored_places").read_bad_records(there, ending)), form)
            return
        if isinstance(config, JobConfig):
            done = spark_module("job.replay").replay_bad_records(config, ending)
        else:
            done = spark_module("job.many.replay").replay_routed(config, ending)
        click.echo(done.line())


def _place_at(path: str) -> BadRecordsPlace:
    """Returns the place from which bad records are read: the table at `path`, or else the folder at `path`. Raises
    OptionError if the folder is empty or does not exist.
    """
    place, _ = given_place(path, {})
    io, root = file_io_for(place.uri, place.storage)
    if Schemas(io, root).latest_id() is not None:
        return RejectsTable(place.uri, place.storage)
    if not io.list_names(root):
        raise OptionError(
            f"there are no bad records at {path}: the folder is empty or does not exist", key="path", path=path
        )
    return Folder(place.uri, place.storage)


def _stored(place: BadRecordsPlace | None) -> pa.Table:
    """Reads the bad records in a folder or a table. Raises OptionError if `place` is None: the job stores no bad
    records.
    """
    stored = stored_in(place)
    if stored is None:
        raise OptionError("the job does not store bad records: set bad-records.path in the job file", key="bad-records")
    return stored.rows("")


def _counts(*found: pa.Table) -> pa.Table:
    """Returns the stored bad records by reason: the number of records that wait, the number that were replayed, and the
    first record of the newest batch with this reason.
    """
    rows = pa.concat_tables(found).sort_by([("batch_id", "descending"), ("number", "ascending")])
    parts = pc.extract_regex(rows["reason"].combine_chunks(), _ABOUT).flatten()
    about = [if_else(pc.equal(part, ""), None, part) for part in parts]
    shown = pa.table(
        {
            "code": pc.fill_null(rows["code"], "?"),
            "about": pc.fill_null(pc.coalesce(*about), ""),
            "waiting": rows["replay"].is_null().cast(pa.int64()),
            "replayed": rows["replay"].is_valid().cast(pa.int64()),
            "reason": rows["reason"],
            "topic": rows["topic"],
            "partition": rows["partition"],
            "offset": rows["offset"],
            "value": pc.binary_slice(pc.fill_null(rows["value"], b""), 0, _SHOWN_BYTES),
        }
    )
    sample = ("reason", "topic", "partition", "offset", "value")
    first = [(name, "first", pc.ScalarAggregateOptions(skip_nulls=False)) for name in sample]
    groups = shown.group_by(["code", "about"], use_threads=False)
    counted = groups.aggregate([("waiting", "sum"), ("replayed", "sum"), *first])
    names = {"waiting_sum": "waiting", "replayed_sum": "replayed"} | {f"{name}_first": name for name in sample}
    counted = counted.rename_columns([names.get(name, name) for name in counted.column_names])
    texts = [bytes(value or b"").decode("utf-8", "replace") for value in counted["value"].to_pylist()]
    at = counted.schema.get_field_index("value")
    return counted.set_column(at, "value", pa.array(texts, pa.string())).sort_by([("waiting", "descending")])
