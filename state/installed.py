"""Checks that the installed packages are new enough: an older package would fail later, or give wrong values.

The versions are read from the names of the packages' folders, which takes less than a millisecond. Importing the
packages would take a thousand times as long.
"""

import os
import re
import sys
from collections.abc import Sequence
from functools import lru_cache

from bucketline.conf.errors import OptionError

OLDEST = {
    "pyarrow": "22.0.0",
    "numpy": "1.26",
    "fastavro": "1.9",
    "pyroaring": "1.0.1",
    "rocksdict": "0.3.24",
    "click": "8.2",
    "rich": "13",
    "pyyaml": "6",
    "sqlglot": "30.22",
    "pyspark": "3.5",
    "pandas": "2.2",
    "confluent-kafka": "2.12",
    "datasketches": "5.2",
    "obstore": "0.12",
    "hdfs-native": "0.14.7",
    "prometheus-client": "0.20",
    "psycopg": "3.1.18",
}
"""The oldest supported release of each package, as in pyproject.toml. Optional packages are included."""

_FOLDER = re.compile(r"(?P<name>[A-Za-z0-9._]+)-(?P<version>[0-9]+(?:\.[0-9]+)*)[^-]*\.dist-info")
_SEPARATORS = re.compile(r"[-_.]+")


@lru_cache(1)
def check_installed() -> None:
    """Raises OptionError, which names the package, if an installed package is too old. The check is made once in each
    process.
    """
    check_releases(sys.path)


def check_releases(folders: Sequence[str]) -> None:
    """Raises OptionError, which names the package, if a package in these folders is too old. If several folders have a
    package, the first folder counts.
    """
    seen: set[str] = set()
    for folder in folders:
        found = _releases(folder or ".")
        for name, version in found.items():
            if name not in seen and _numbers(version) < _numbers(OLDEST[name]):
                raise OptionError(
                    f"{name} {version} is too old: bucketline needs {OLDEST[name]} or later; run "
                    f"pip install -U '{name}>={OLDEST[name]}'",
                    key=name,
                    found=version,
                    needed=OLDEST[name],
                )
        seen |= found.keys()


def _releases(folder: str) -> dict[str, str]:
    """Returns the installed release of each package in `OLDEST`, by name. If a folder has several releases of a
    package, the newest is returned.
    """
    try:
        names = os.listdir(folder)
    except OSError:
        return {}
    found: dict[str, str] = {}
    for entry in names:
        match = _FOLDER.fullmatch(entry) if entry.endswith(".dist-info") else None
        name = _SEPARATORS.sub("-", match["name"]).lower() if match is not None else ""
        if match is not None and name in OLDEST:
            found[name] = max(found.get(name, "0"), match["version"], key=_numbers)
    return found


def _numbers(version: str) -> tuple[int, ...]:
    """Returns a release as a tuple of numbers, so that releases can be compared: 1.10 is newer than 1.9, and 1.9.0
    equals 1.9.
    """
    numbers = [int(part) for part in version.split(".")]
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
