"""Paimon's options for data files outside the table's folder.

Source: Paimon 2.0 CoreOptions, AbstractFileStore.createExternalPaths, ExternalPathProvider.
"""

import re
from collections.abc import Mapping
from typing import Any

from bucketline.conf.errors import OptionError
from bucketline.conf.option import Option, parse_enum, parse_names, parse_text, whole_number
from bucketline.conf.table.choices import ExternalPlace

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")


def _paths(text: str) -> tuple[str, ...]:
    paths = tuple(path.rstrip("/") for path in parse_names(text))
    for path in paths:
        if _SCHEME.match(path) is None:
            raise OptionError(
                f"{path!r} has no scheme; write for example 'file:/data' or 's3://bucket/folder'", value=text
            )
    return paths


def _weights(text: str) -> tuple[int, ...]:
    names = parse_names(text)
    if not all(name.isascii() and name.isdigit() and whole_number(name) > 0 for name in names):
        raise OptionError("weights must be whole numbers above 0, for example '10,5'", value=text)
    return tuple(whole_number(name) for name in names)


EXTERNAL_PATHS: Option[tuple[str, ...]] = Option(
    "data-file.external-paths", _paths, (), "folders outside the table for new data files"
)
EXTERNAL_STRATEGY = Option(
    "data-file.external-paths.strategy",
    parse_enum(ExternalPlace),
    ExternalPlace.NONE,
    "how the external path of a new file is chosen; none: new files go to the table's own folder",
)
EXTERNAL_SPECIFIC_FS: Option[str] = Option(
    "data-file.external-paths.specific-fs",
    parse_text,
    None,
    "specific-fs: the scheme of the external paths that are used",
)
EXTERNAL_WEIGHTS: Option[tuple[int, ...]] = Option(
    "data-file.external-paths.weights", _weights, None, "weighted: the share of each path, for example '10,5'"
)

EXTERNAL_OPTIONS: Mapping[str, Option[Any]] = {
    option.key: option for option in tuple(globals().values()) if isinstance(option, Option)
}
"""A mapping of all options above by key, in the order of this file."""


def external_roots(options: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the folders for new files, without a slash at the end; empty if new files go to the table's own
    folder.
    """
    strategy, paths = EXTERNAL_STRATEGY.get(options), EXTERNAL_PATHS.get(options)
    if strategy is ExternalPlace.NONE:
        return ()
    if strategy is not ExternalPlace.SPECIFIC_FS:
        return paths
    wanted = (EXTERNAL_SPECIFIC_FS.find(options) or "").lower()
    return tuple(path for path in paths if path.partition(":")[0].lower() == wanted)


def check_external_options(options: Mapping[str, str]) -> None:
    """Raises OptionError, which names one of the options, if the options for external paths contradict each other."""
    paths, strategy = EXTERNAL_PATHS.get(options), EXTERNAL_STRATEGY.get(options)
    if not paths or strategy is ExternalPlace.NONE:
        return
    if strategy is ExternalPlace.SPECIFIC_FS and not external_roots(options):
        _refuse(EXTERNAL_SPECIFIC_FS, f"must be the scheme of one of the paths in '{EXTERNAL_PATHS.key}'")
    weights = EXTERNAL_WEIGHTS.find(options)
    if strategy is ExternalPlace.WEIGHTED and weights is not None and len(weights) != len(paths):
        _refuse(
            EXTERNAL_WEIGHTS,
            "The number of external paths and weights should be the same. "
            f"Paths: {len(paths)}, Weights: {len(weights)}",
        )


def _refuse(option: Option[Any], message: str) -> None:
    raise OptionError(f"'{option.key}': {message}", key=option.key)
