"""Determines the settings of a job. The command line overrides the job file, the job file overrides the table, and the
table overrides the defaults.

An unknown key is an error, which names the most similar known key. Secrets are masked wherever settings are shown.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from bucketline.conf.catalog_options import CATALOG_OPTIONS
from bucketline.conf.column_options import EXPECT
from bucketline.conf.durations import check_given_durations
from bucketline.conf.errors import OptionError
from bucketline.conf.job import (
    CATALOG,
    CHECKPOINT,
    CREATE_OPTIONS,
    JOB_KEYS,
    JOB_PREFIXES,
    OPTIONS,
    SOURCE_OPTIONS,
    SOURCE_READER,
    STORAGE,
    JobConfig,
    Setting,
    job_config,
)
from bucketline.conf.job import TABLE as PLACE_OF_TABLE
from bucketline.conf.job_file.properties_file import parse_properties
from bucketline.conf.job_file.references import has_reference, hides, is_reference, looked_up, references_in
from bucketline.conf.option import nearest, nearest_key
from bucketline.conf.routes.route_options import EXCLUDE, TABLES, TOPIC
from bucketline.conf.routes.routed_job import (
    ROUTES_FORM,
    RoutedJob,
    check_route_key,
    has_routes,
    refuse_alone,
    routed_job,
)
from bucketline.conf.secrets import keep_looked_up, mask
from bucketline.conf.sink_options import (
    BAD_RECORDS_MAX,
    BAD_RECORDS_PATH,
    BAD_RECORDS_TABLE,
    FRAME_READER,
    KEY_ORDER,
    OUR_OPTIONS,
    ROUTE_MEMORY,
    route_memory,
)
from bucketline.conf.sources.known_options import KAFKA_OPTIONS
from bucketline.conf.sources.message_options import INFINITY, TYPES, Infinity
from bucketline.conf.storage_options import STORAGE_OPTIONS, refuse_storage_keys
from bucketline.conf.table.fixed_options import FIXED_BY_TABLE, check_job_options
from bucketline.conf.table.memory_options import WRITE_BUFFER_SIZE, why_without_effect
from bucketline.conf.table.other_options import HARMLESS_PREFIXES
from bucketline.conf.table.promised_options import unkept_by_reads, unkept_by_writes
from bucketline.conf.table.table_options import HONOURED, KNOWN_KEYS

_OWN_SECTION = (BAD_RECORDS_PATH.key, BAD_RECORDS_TABLE.key, BAD_RECORDS_MAX.key, KEY_ORDER.key)
"""Keys of a job file that set an option of the sink, although they are not in the section `options`."""
_SECTION_KEYS = (
    *JOB_KEYS,
    *(f"{SOURCE_OPTIONS}{KAFKA_OPTIONS[0]}", f"{CREATE_OPTIONS}bucket", f"{OPTIONS}{ROUTE_MEMORY.key}"),
    *(f"{STORAGE}s3.endpoint", f"{CATALOG}warehouse", f"{TYPES}COLUMN", f"{EXPECT}NAME.check"),
)
"""An example of a setting for each section of a job file. An error about a section shows the example."""
_MOST_BYTES = 1 << 20
"""The largest size of a job file in bytes, and of its settings after YAML's aliases are expanded."""
_MOST_DEPTH = 20
_ROUTES = TABLES.rstrip(".")
_ONE_PLACE = (PLACE_OF_TABLE.key, CHECKPOINT.key)
_LISTS = (_ROUTES, EXCLUDE.key)
"""Keys whose lists are not joined with commas: routes, and patterns, which may contain commas."""
COMMAND_LINE, TABLE, DEFAULT = "command line", "table", "default"


def load_job(path: str, assignments: Sequence[str] = ()) -> JobConfig:
    """Reads the job of one table from a local .yaml, .yml, .json or .properties file. `assignments` are texts of the
    form `key=value` that override settings of the file.

    Raises OptionError if the file cannot be read or a setting is not valid.
    """
    return resolve_job(look_up(read_settings_file(path), read_assignments(assignments)))


def look_up(*layers: Mapping[str, Setting]) -> dict[str, Setting]:
    """Combines several layers of settings into one, and replaces references in the settings. A later layer overrides an
    earlier one.

    Secret values that replace a reference are masked in everything that this process shows. Raises OptionError for a
    reference that cannot be replaced, and for an unknown key.
    """
    settings: dict[str, Setting] = {}
    for key, setting in _merged(layers).items():
        text = looked_up(key, setting.text)
        is_reference = has_reference(setting.text)
        if is_reference and hides(key):
            keep_looked_up(text)
            for match in set(references_in(setting.text)):
                keep_looked_up(looked_up(key, match))
        settings[key] = replace(setting, text=text, written=setting.text if is_reference else None)
    return settings


def read_settings_file(path: str) -> dict[str, Setting]:
    """Returns the settings in a local .yaml, .yml, .json or .properties file. Raises OptionError if the file cannot be
    read.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as e:
        raise OptionError(f"cannot read the file {path!r}: {e}", path=path) from e
    if len(data) > _MOST_BYTES:
        raise OptionError(f"cannot read the file {path!r}: it is larger than {_MOST_BYTES >> 20} MiB", path=path)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as e:
        raise OptionError(f"cannot read the file {path!r}: {e}", path=path) from e
    return read_settings(text, name=path)


def resolve_job(*layers: Mapping[str, Setting]) -> JobConfig:
    """Combines several layers of settings, and returns the job of one table that the layers describe. A later layer
    overrides an earlier one. Raises the errors of `resolve_jobs`, and OptionError for a job of several tables.
    """
    return of_one_table(resolve_jobs(*layers))


def of_one_table(job: JobConfig | RoutedJob) -> JobConfig:
    """Returns the job unchanged if it is a job of one table. Raises OptionError for a job of several tables."""
    if isinstance(job, RoutedJob):
        raise OptionError(
            "the job has several tables (the key 'tables'), but a job of one table is needed here",
            key=_ROUTES,
        )
    return job


def resolve_jobs(*layers: Mapping[str, Setting]) -> JobConfig | RoutedJob:
    """Combines several layers of settings, and returns the job that the layers describe: a job of one table, or of
    several tables. A later layer overrides an earlier one.

    Raises OptionError for an unknown key (the message names the most similar known key), and for missing or invalid
    values.
    """
    settings = _merged(layers)
    if has_routes(settings):
        return routed_job(settings)
    refuse_alone(settings)
    return job_config(settings)


def _merged(layers: Iterable[Mapping[str, Setting]]) -> dict[str, Setting]:
    settings: dict[str, Setting] = {}
    for layer in layers:
        for key, setting in layer.items():
            check_key(key, setting.origin)
        settings.update(layer)
    return settings


def read_settings(text: str, *, name: str) -> dict[str, Setting]:
    """Parses the text of a job file, and returns its settings by key; nested keys are joined with dots.

    `name` is the name of the file. The ending of the name determines the syntax, and errors show the name.
    """
    pairs = parse_properties(text) if name.endswith(".properties") else _yaml_pairs(text, name)
    settings: dict[str, Setting] = {}
    for key, value in pairs:
        if key in settings:
            raise OptionError(f"'{key}' is set twice in {name}", key=key)
        settings[key] = Setting(value, name)
    return settings


def read_assignments(assignments: Iterable[str]) -> dict[str, Setting]:
    """Parses texts of the form `key=value`. If a key occurs twice, the last text counts. Raises OptionError for a text
    without `=`.
    """
    settings: dict[str, Setting] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key.strip():
            raise OptionError(f"{assignment!r} is not 'key=value'", value=assignment)
        settings[key.strip()] = Setting(value.strip(), COMMAND_LINE)
    return settings


def check_key(key: str, origin: str) -> None:
    """Raises OptionError, which names the most similar known key, if a job cannot have the key. `origin` says in the
    error where the key was found.

    Options of the source are not checked.
    """
    if key.startswith((TABLES, f"{EXCLUDE.key}.")) or key == _ROUTES:
        if origin == COMMAND_LINE or origin.endswith(".properties"):
            raise OptionError(
                f"'{key}' belongs to a list, and {origin} cannot address an entry of a list: write the list into a job "
                "file in YAML or JSON",
                key=key,
            )
        if key.startswith(TABLES) and (name := check_route_key(key, origin)) != TOPIC.key:
            check_key(name, origin)
        elif key == _ROUTES:
            raise OptionError(f"'{key}' in {origin} must be {ROUTES_FORM}", key=key)
        return
    for prefix, known in ((CREATE_OPTIONS, KNOWN_KEYS), (OPTIONS, KNOWN_KEYS | OUR_OPTIONS.keys())):
        if key.startswith(prefix):
            name = key.removeprefix(prefix)
            refuse_storage_keys({name: ""}, origin)
            if name in _OWN_SECTION:
                raise OptionError(f"'{key}' in {origin} must be written '{name}' in a job", key=key)
            if name == FRAME_READER.key:
                raise OptionError(
                    f"'{key}' in {origin} is for a TableSink; in a job, set '{SOURCE_READER.key}' instead", key=key
                )
            if name not in known and not name.startswith(tuple(HARMLESS_PREFIXES)):
                raise OptionError(f"unknown option '{name}' in {origin}{nearest_key(name, known)}", key=key)
            return
    if key not in JOB_KEYS and not (key.startswith(JOB_PREFIXES) and key not in JOB_PREFIXES):
        example = next((k for k in _SECTION_KEYS if k.startswith(f"{key}.")), None)
        if example is not None:
            raise OptionError(
                f"'{key}' in {origin} is a section, and has no value of its own: write its settings below it, as "
                f"'{example}'",
                key=key,
            )
        raise OptionError(f"unknown key '{key}' in {origin}{_nearest_of_job(key)}", key=key)


def _nearest_of_job(key: str) -> str:
    """Returns the end of an error message with a suggestion for an unknown key: a known key that ends with the
    unknown key, or else the known key with the most similar spelling.
    """
    options = {name: OPTIONS + name for name in (*HONOURED, *OUR_OPTIONS) if name not in FIXED_BY_TABLE}
    fixed = {name: CREATE_OPTIONS + name for name in HONOURED}
    names = {name: f"{SOURCE_OPTIONS}{name}" for name in KAFKA_OPTIONS} | fixed | options
    storage = {name: STORAGE + name for name in STORAGE_OPTIONS} | {n: CATALOG + n for n in CATALOG_OPTIONS}
    if key in names | storage:
        return f"; did you mean '{(names | storage)[key]}'?"
    for prefix in JOB_PREFIXES:
        depth = prefix.count(".")
        head, rest = ".".join(key.split(".")[:depth]), ".".join(key.split(".")[depth:])
        if rest and nearest(head, [prefix.rstrip(".")], cutoff=0.8):
            inside = {k.removeprefix(prefix) for k in (*names.values(), *fixed.values(), *storage.values())}
            return f"; did you mean '{prefix}{rest if rest in inside else nearest(rest, inside) or rest}'?"
    return nearest_key(key, {*JOB_KEYS, *names.values(), *storage.values()})


def effective_options(job: Mapping[str, Setting], table: Mapping[str, str] | None) -> dict[str, Setting]:
    """Returns every option of sink and table that has a value, sorted by key. The result has the origin of each value,
    too.

    If an option has no effect, its origin also says why. `job` are the settings of a JobConfig. `table` are the table's
    options, or None if they are not known. Raises OptionError if the job changes an option that only the table may set;
    if the table's options are not known, this rule is not checked.
    """
    defaults = {
        option.key: Setting(option.shown(), DEFAULT)
        for option in (*OUR_OPTIONS.values(), *HONOURED.values())
        if option.default is not None
    }
    options = defaults | {key: Setting(text, TABLE) for key, text in (table or {}).items()}
    for key, setting in job.items():
        if not key.startswith(OPTIONS):
            continue
        name = key.removeprefix(OPTIONS)
        if table is None:
            check_given_durations({name: setting.text}, origin=setting.origin)
        else:
            check_job_options({name: setting.text}, table, origin=setting.origin)
        options[name] = setting
    texts = {key: setting.text for key, setting in options.items()}
    buffer = options.get(WRITE_BUFFER_SIZE.key)
    if buffer is not None and options[ROUTE_MEMORY.key].origin == DEFAULT:
        del texts[ROUTE_MEMORY.key]
        origin = f"{WRITE_BUFFER_SIZE.key} of {buffer.origin}"
        options[ROUTE_MEMORY.key] = Setting(ROUTE_MEMORY.text_of(route_memory(texts)), origin)
    for key, setting in options.items():
        why = why_without_effect(key, texts) or unkept_by_reads(key, texts) or unkept_by_writes(key, texts)
        if why is not None:
            options[key] = replace(setting, origin=f"{setting.origin}; without effect: {why}")
    return dict(sorted(options.items()))


def show_settings(settings: Mapping[str, Setting]) -> list[tuple[str, str, str]]:
    """Returns the key, the value and the origin of each setting, in the given order. Secrets are masked."""
    return [(key, _shown(key, setting), setting.origin) for key, setting in settings.items()]


def _shown(key: str, setting: Setting) -> str:
    """Returns the text of a setting for display, with secrets masked. A setting that consists of a reference contains
    no secret, so it is not masked.
    """
    is_open = setting.written is not None or has_reference(setting.text)
    return setting.shown if is_open and is_reference(setting.shown) else mask(key, setting.shown)


def _yaml_pairs(text: str, name: str) -> list[tuple[str, str]]:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        raise _too_deep(name) from None
    except yaml.YAMLError as e:
        # The parser's own message shows a line of the file, which may contain a secret.
        mark = getattr(e, "problem_mark", None)
        where = "" if mark is None else f", line {mark.line + 1}"
        why = getattr(e, "problem", None) or "it cannot be read"
        raise OptionError(f"{name}{where} is no valid YAML: {why}", path=name) from None
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise OptionError(f"{name} must have keys at the top level", path=name)
    return list(_Flat(name).pairs(root, "", 0))


_NULL_TAG = "tag:yaml.org,2002:null"


class _Flat:
    """Reads the settings below a node of a YAML file.

    The size of the settings is counted during the reading, because aliases of aliases can expand to more than fits into
    memory.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._left_signs = _MOST_BYTES

    def pairs(self, node: yaml.Node, key: str, depth: int) -> Iterator[tuple[str, str]]:
        """Yields the key and the text of each setting below `node`. `key` is the key of the node, and `depth` is its
        depth of nesting. A text is returned as it is in the file, so that numbers and dates keep their form. A setting
        with an empty value is left out.
        """
        if depth > _MOST_DEPTH:
            raise _too_deep(self._name)
        self._count(len(key) + 1)
        if isinstance(node, yaml.MappingNode):
            for key_node, value in node.value:
                if not isinstance(key_node, yaml.ScalarNode):
                    line = key_node.start_mark.line + 1
                    raise OptionError(f"{self._name}, line {line}: a key must be a string", path=self._name)
                if not key and key_node.value == _ROUTES and (value.tag == _NULL_TAG or not value.value):
                    raise OptionError(f"'{_ROUTES}' in {self._name} is empty: write {ROUTES_FORM}", key=_ROUTES)
                yield from self.pairs(value, f"{key}.{key_node.value}" if key else key_node.value, depth + 1)
        elif isinstance(node, yaml.SequenceNode) and key in _LISTS:
            for number, part in enumerate(node.value):
                yield from self.pairs(part, f"{key}.{number}", depth + 1)
        elif isinstance(node, yaml.SequenceNode):
            if not all(isinstance(part, yaml.ScalarNode) for part in node.value):
                raise OptionError(f"{self._name}: '{key}' must be a list of strings", key=key)
            if key in _ONE_PLACE:
                raise OptionError(f"'{key}' in {self._name} names one place, so it cannot be a list", key=key)
            self._count(sum(len(part.value) + 1 for part in node.value))
            yield key, ",".join(part.value for part in node.value)
        elif node.tag != _NULL_TAG or (key == INFINITY.key and node.value == Infinity.NULL.value):
            self._count(len(node.value))
            yield key, node.value

    def _count(self, signs: int) -> None:
        self._left_signs -= signs
        if self._left_signs < 0:
            raise OptionError(
                f"the settings of {self._name}, with its aliases expanded, are larger than {_MOST_BYTES >> 20} MiB",
                path=self._name,
            )


def _too_deep(name: str) -> OptionError:
    return OptionError(f"{name} is nested more than {_MOST_DEPTH} levels deep, or an alias contains itself", path=name)
