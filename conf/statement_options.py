"""An SQL statement that creates a table or a catalog may have options that only Spark or Flink needs. This module
removes such options.
"""

from collections.abc import Mapping

from bucketline.conf.errors import OptionError

_COMMENT = "comment"
_CONNECTOR = "connector"
_TYPE = "type"
_TYPES = ("paimon", "paimon-generic")


def split_comment(properties: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """Returns the options of a table without its comment, and the comment. Spark passes the comment of a table as one
    of its options.

    Flink's `connector` is removed too, and must name Paimon. Raises OptionError if `connector` names something else.
    """
    options = dict(properties)
    connector = options.pop(_CONNECTOR, _TYPES[0])
    if connector not in _TYPES:
        raise OptionError(
            f"Paimon Catalog only supports paimon tables, but you specify 'connector'= '{connector}'",
            key=_CONNECTOR,
            value=connector,
        )
    return options, options.pop(_COMMENT, None)


def without_type(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of a catalog without `type`, which must name Paimon. Raises OptionError if `type` names
    something else.
    """
    options = dict(properties)
    kind = options.pop(_TYPE, _TYPES[0])
    if kind not in _TYPES:
        raise OptionError(f"CREATE CATALOG: 'type' = '{kind}' is not supported; use 'paimon'", key=_TYPE, value=kind)
    return options


def names_place(options: Mapping[str, str]) -> bool:
    """Returns True if the options of a new table set the table's path. Only the catalog may choose the path."""
    return "path" in options
