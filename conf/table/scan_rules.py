"""Rules for the `scan.*` options of a table: each start mode of a read has its own options, and excludes the options of
other modes.

Paimon cannot open a table that breaks these rules, even if a read sets other options. Source: Paimon 1.4 and 2.0
SchemaValidation.validateStartupMode, CoreOptions.startupMode.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bucketline.conf.errors import OptionError
from bucketline.conf.option import did_you_mean
from bucketline.conf.table.read_options import (
    SCAN_FALLBACK_BRANCH,
    SCAN_MODE_KEY,
    SCAN_PRIMARY_BRANCH,
    SCAN_SNAPSHOT_ID,
    SCAN_TAG_NAME,
    SCAN_TIMESTAMP_MILLIS,
    SCAN_VERSION,
)

_MILLIS, _TIME = SCAN_TIMESTAMP_MILLIS.key, "scan.timestamp"
_SNAPSHOT, _TAG, _WATERMARK = SCAN_SNAPSHOT_ID.key, SCAN_TAG_NAME.key, "scan.watermark"
_FILE_TIME, _CREATION_TIME = "scan.file-creation-time-millis", "scan.creation-time-millis"
_BETWEEN, _BETWEEN_TIMES, _AUTO_TAG = "incremental-between", "incremental-between-timestamp", "incremental-to-auto-tag"
_OLD_KEYS = {"log.scan": SCAN_MODE_KEY, "log.scan.timestamp-millis": _MILLIS}
"""Keys from older releases of Paimon, each with the newer key that means the same."""

_STARTS = (_MILLIS, _TIME, _SNAPSHOT, _TAG, _FILE_TIME, _BETWEEN, _BETWEEN_TIMES, _AUTO_TAG)
"""Options that say where a read starts. Each start mode excludes some of them."""


@dataclass(frozen=True, slots=True)
class _Mode:
    """The options of a start mode. Exactly one option in `one_of` must be set, unless `one_of` is empty, and no option
    in `without` may be set.
    """

    one_of: tuple[str, ...] = ()
    without: tuple[str, ...] = _STARTS


def _but(*keys: str) -> tuple[str, ...]:
    return tuple(key for key in _STARTS if key not in keys)


_MODES: Mapping[str, _Mode] = {
    "latest-full": _Mode(),
    "latest": _Mode(),
    "compacted-full": _Mode(),
    "from-creation-timestamp": _Mode(),
    "from-timestamp": _Mode((_MILLIS, _TIME), _but(_MILLIS, _TIME)),
    "from-snapshot": _Mode((_SNAPSHOT, _TAG, _WATERMARK), _but(_SNAPSHOT, _TAG)),
    "from-snapshot-full": _Mode((_SNAPSHOT,), _but(_SNAPSHOT)),
    "from-file-creation-time": _Mode((_FILE_TIME,), _but(_FILE_TIME, _TIME)),
    "incremental": _Mode((_BETWEEN, _BETWEEN_TIMES, _AUTO_TAG), _but(_BETWEEN, _BETWEEN_TIMES, _AUTO_TAG)),
}
_CHOSEN_BY: tuple[tuple[tuple[str, ...], str], ...] = (
    ((_MILLIS, _TIME), "from-timestamp"),
    ((_SNAPSHOT, _TAG, _WATERMARK, SCAN_VERSION.key), "from-snapshot"),
    ((_FILE_TIME,), "from-file-creation-time"),
    ((_CREATION_TIME,), "from-creation-timestamp"),
    ((_BETWEEN, _BETWEEN_TIMES), "incremental"),
    ((), "latest-full"),
)
"""The start modes that follow from other options. If a table does not set a mode, the first option in this list that is
set determines it.
"""


def scan_problems(options: Mapping[str, str]) -> Iterator[OptionError]:
    """Yields an error for each option that must not be set with the start mode (`scan.mode`) of the table's reads. Also
    yields an error if not exactly one of the options that the start mode needs is set.

    If `scan.version` is set, the options are checked twice, because Paimon checks them at two times. When a table is
    created, Paimon checks the options as they are. When a table is opened, Paimon has replaced `scan.version` by the
    option for the snapshot or tag that the version names.
    """
    named = {_OLD_KEYS.get(key, key): value for key, value in options.items()}
    problems = list(_problems(named))
    yield from problems
    version = named.pop(SCAN_VERSION.key, None)
    if version is None or problems:
        return
    if any(_problems({**named, _SNAPSHOT if version.isdecimal() else _TAG: version})):
        yield _no_version()


def _problems(named: Mapping[str, str]) -> Iterator[OptionError]:
    word = named.get(SCAN_MODE_KEY, "default").strip().lower().replace("_", "-")
    chosen = next(mode for keys, mode in _CHOSEN_BY if not keys or any(key in named for key in keys))
    mode = {"default": chosen, "full": "latest-full"}.get(word, word)
    rule = _MODES.get(mode)
    if rule is None:
        words, text = ("default", "full", *_MODES), named[SCAN_MODE_KEY]
        yield OptionError(
            f"'{SCAN_MODE_KEY}' = {text!r} must be one of {', '.join(words)}{did_you_mean(word, words)}",
            key=SCAN_MODE_KEY,
        )
        return
    own = [key for key in rule.one_of if key in named]
    if rule.one_of and len(own) != 1:
        yield _misses(rule.one_of, own, mode, named)
    for key in rule.without:
        if key in named:
            yield OptionError(
                f"'{key}' cannot be an option of a table whose reads start {_as(mode, named)}: Paimon cannot open such "
                f"a table; remove '{key}' from the table, and set it when the table is read",
                key=key,
            )


def branch_name_problems(options: Mapping[str, str]) -> Iterator[OptionError]:
    """Yields an error if both options that name another branch for reads are set. At most one may be set."""
    if all(options.get(option.key, "").strip() for option in (SCAN_FALLBACK_BRANCH, SCAN_PRIMARY_BRANCH)):
        yield OptionError(
            f"'{SCAN_FALLBACK_BRANCH.key}' and '{SCAN_PRIMARY_BRANCH.key}' cannot be set at the same time; remove one",
            key=SCAN_FALLBACK_BRANCH.key,
        )


def _misses(one_of: tuple[str, ...], own: list[str], mode: str, named: Mapping[str, str]) -> OptionError:
    listed = ", ".join(f"'{key}'" for key in one_of)
    if SCAN_VERSION.key in named and not own:
        return _no_version()
    found = " and ".join(f"'{key}'" for key in own) or "none of them"
    return OptionError(
        f"a table whose reads start {_as(mode, named)} needs exactly one of {listed}, and has {found}; set "
        "exactly one, because otherwise Paimon cannot open the table",
        key=own[-1] if own else SCAN_MODE_KEY,
    )


def _no_version() -> OptionError:
    key = SCAN_VERSION.key
    return OptionError(
        f"'{key}' cannot be an option of a table: Paimon cannot open such a table; remove the option, and set it when "
        "the table is read",
        key=key,
    )


def _as(mode: str, named: Mapping[str, str]) -> str:
    """Returns the words that follow `reads start` in an error message and name the options that choose the start mode,
    for example `by 'scan.mode' = 'latest'`.
    """
    if SCAN_MODE_KEY in named and named[SCAN_MODE_KEY].strip().lower() != "default":
        return f"by '{SCAN_MODE_KEY}' = '{mode}'"
    by = next(keys for keys, chosen in _CHOSEN_BY if chosen == mode)
    keys = [f"'{key}'" for key in by if key in named]
    return f"by {' and '.join(keys)}" if keys else f"by '{SCAN_MODE_KEY}' = '{mode}', the default"
