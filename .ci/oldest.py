"""Prints the oldest releases that pyproject.toml allows of what the tests need, as constraints of pip.

`python .ci/oldest.py`, by `.ci/run oldest`. What only checks the sources (lint, types, layers) is left out: no test
loads it.
"""

import re
import tomllib
from pathlib import Path

_ONLY_CHECKS = ("mypy", "ruff", "import-linter")
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*>=\s*(?P<oldest>[0-9.]+)")


def oldest_releases(project: dict[str, object]) -> dict[str, str]:
    """The oldest release of each package, by name, that the table `project` allows wherever it names the package."""
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict) and isinstance(project["dependencies"], list)
    found: dict[str, str] = {}
    for text in (*project["dependencies"], *(text for extra in extras.values() for text in extra)):
        match = _REQUIREMENT.match(text)
        if match is not None and match["name"] not in _ONLY_CHECKS:
            found[match["name"]] = max(found.get(match["name"], "0"), match["oldest"], key=release)
    return found


def release(text: str) -> tuple[int, ...]:
    """A release as numbers that can be compared."""
    return tuple(int(part) for part in text.split("."))


if __name__ == "__main__":
    stated = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    for name, oldest in oldest_releases(stated["project"]).items():
        print(f"{name}=={oldest}")
