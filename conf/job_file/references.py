"""Replaces references in a job file: `${env:NAME}` stands for the value of an environment variable, and `${file:PATH}`
for the content of a file.

`${file:PATH:KEY}` stands for the value of a key in a properties file. Write `$${` for a literal `${`.
Source: Kafka 4.1 EnvVarConfigProvider, FileConfigProvider, DirectoryConfigProvider.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from bucketline.conf.errors import OptionError
from bucketline.conf.job_file.properties_file import parse_properties

_REFERENCE = re.compile(r"\$(?P<escaped>\$\{(?:env|file):)|\$\{(?P<kind>env|file):(?P<name>[^}]*)\}")
_UNKNOWN = re.compile(r"\$\{[^}]*\}?")
_MOST_BYTES = 1 << 20

_OF_ROUTE = re.compile(r"^tables\.\d+\.")

_STORED = ("create", "create.")
_SHOWN_BY_SPARK = ("select", "where", "expect.")
_OF_SECRETS = ("source.options.", "source.registry.", "storage.", "catalog.")
"""Prefixes of settings whose values are kept secret if they contain a reference."""
_PLACES = frozenset(
    {
        "source.options.kafka.bootstrap.servers",
        "source.options.subscribe",
        "source.options.subscribepattern",
        "source.options.assign",
        "source.options.startingoffsets",
        "source.options.path",
        "source.registry.url",
        "catalog.uri",
        "catalog.warehouse",
        "catalog.metastore",
        "storage.s3.endpoint",
        "storage.s3.region",
    }
)
"""Settings that name a location, in lower case. Their values appear in logs, snapshots and checkpoints."""


def has_reference(text: str) -> bool:
    """Returns True if a text contains a reference."""
    return any(match["kind"] is not None for match in _REFERENCE.finditer(text))


def is_reference(text: str) -> bool:
    """Returns True if a text of a job file consists of one reference only, such as `${env:PASSWORD}`. For
    `x${env:USER}` the result is False.
    """
    match = _REFERENCE.fullmatch(text)
    return match is not None and match["kind"] is not None


def references_in(text: str) -> list[str]:
    """Returns the references in a text, as they are written, for example `${env:HOME}`."""
    return [match[0] for match in _REFERENCE.finditer(text) if match["kind"] is not None]


def refuse_unknown_references(key: str, text: str) -> None:
    """Raises OptionError if a text contains `${...}` that is no reference, such as `${HOME}` or `${evn:HOME}`. `text`
    is the value of the setting `key`, which names a place. Without this check a folder with that name would be made.
    """
    unknown = _UNKNOWN.search(_REFERENCE.sub("", text))
    if unknown is not None:
        raise OptionError(
            f"'{key}' contains {unknown[0]!r}, which stands for nothing; write ${{env:NAME}} for an environment "
            "variable, or ${file:PATH} for the text of a file",
            key=key,
        )


def hides(key: str) -> bool:
    """Returns True if the text that replaces a reference in this setting must be kept secret."""
    return key.startswith(_OF_SECRETS) and key.lower() not in _PLACES


def looked_up(key: str, text: str, variables: Mapping[str, str] = os.environ) -> str:
    """Returns the text of a setting with its references replaced. `variables` are the environment variables.

    Raises OptionError for a variable that is not set, and for a file that cannot be read or lacks the key. Also raises
    OptionError for a reference in a setting that is stored in the table or shown by Spark.
    """
    if not has_reference(text):
        return _REFERENCE.sub(lambda match: match["escaped"], text)
    said = _OF_ROUTE.sub("", key)
    if said.startswith((*_STORED, *_SHOWN_BY_SPARK)):
        where = "is stored with the table" if said.startswith(_STORED) else "is shown on Spark's pages"
        raise OptionError(
            f"the value of '{key}' {where}, so it cannot be a reference to a secret: write the value itself", key=key
        )

    def stands_for(match: re.Match[str]) -> str:
        if match["escaped"] is not None:
            return match["escaped"]
        return _variable(key, match["name"], variables) if match["kind"] == "env" else _file(key, match["name"])

    return _REFERENCE.sub(stands_for, text)


def _variable(key: str, name: str, variables: Mapping[str, str]) -> str:
    if name not in variables:
        raise OptionError(f"'{key}' refers to the environment variable {name!r}, which is not set", key=key)
    return variables[name]


def _file(key: str, name: str) -> str:
    """Returns the content of the file `name` without the line feed at its end. If `name` has the form `PATH:KEY`,
    returns the value of the key in the file.
    """
    path, separator, inner = name.rpartition(":")
    if not separator or Path(name).exists():
        return _read(key, name).removesuffix("\n").removesuffix("\r")
    found = dict(parse_properties(_read(key, path)))
    if inner not in found:
        raise OptionError(f"'{key}' refers to the key {inner!r} in the file {path}, which has no such key", key=key)
    return found[inner]


def _read(key: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise OptionError(f"'{key}' refers to the file {path}, which is larger than 1 MiB", key=key)
        return data.decode("utf-8")
    except OSError as e:
        raise OptionError(f"'{key}' refers to the file {path}, which cannot be read: {e.strerror}", key=key) from e
    except UnicodeDecodeError as e:
        raise OptionError(f"'{key}' refers to the file {path}, which is no valid UTF-8 text", key=key) from e
