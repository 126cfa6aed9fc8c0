"""Keys that SQL writes among the options of a statement, and that are no options of what it makes."""

from collections.abc import Mapping

from bucketline.conf.errors import OptionError

_COMMENT = "comment"
_CONNECTOR = "connector"
_TYPE = "type"
_TYPES = ("paimon", "paimon-generic")


def split_comment(properties: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """A table's options without its comment, which Spark's statements put among them, and the comment. Flink's
    `connector` goes too, and must name Paimon. Raises OptionError.
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
    """A catalog's options without `type`, which must name Paimon. Raises OptionError."""
    options = dict(properties)
    kind = options.pop(_TYPE, _TYPES[0])
    if kind not in _TYPES:
        raise OptionError(f"CREATE CATALOG: 'type' = '{kind}' is not supported; 'paimon' is", key=_TYPE, value=kind)
    return options


def names_place(options: Mapping[str, str]) -> bool:
    """Whether the options of a new table name its path, which only the catalog may decide."""
    return "path" in options
