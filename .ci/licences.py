"""Prints the licence of each installed package, and ends with 1 where one is not allowed or not known.

`python licences.py`, with the Python of an environment that has nothing but the product and its extras.
"""

import re
import sys
from importlib.metadata import Distribution, distributions

ALLOWED = (
    "Apache",
    "MIT",
    "BSD",
    "ISC",
    "PSF",
    "Python Software Foundation",
    "Python-2.0",
    "Zlib",
    "Unlicense",
    "0BSD",
    "CC0",
)
"""Words of licences that put no condition on who uses the product beside naming them."""

KNOWN = {
    "certifi": "MPL-2.0: its file of certificates is used as it is",
    "psycopg": "LGPL-3.0: an extra (postgresql), imported and not changed",
    "psycopg-binary": "LGPL-3.0: an extra (postgresql), imported and not changed",
    "hdfs-native": "Apache-2.0, as its Cargo.toml says; its package for Python states none",
}
"""Packages whose licence is another, each with why it may be used. Who adds one has read it."""

_TOOLS = frozenset({"pip", "setuptools", "wheel", "bucketline"})
_LONGEST = 60


def licence_of(found: Distribution) -> str:
    """The licence that a package states, as short as it states it; empty where it does not."""
    metadata = found.metadata
    expression = metadata.get("License-Expression")
    if expression:
        return str(expression)
    classifiers = [
        text.rpartition(" :: ")[2] for text in metadata.get_all("Classifier") or () if text.startswith("License :: ")
    ]
    stated = [text for text in classifiers if text != "OSI Approved"]
    if stated:
        return ", ".join(sorted(stated))
    text = str(metadata.get("License") or "").strip()
    return text.splitlines()[0][:_LONGEST] if text else ""


def is_allowed(name: str, licence: str) -> bool:
    """Whether a package with that licence may be a dependency: each part of `AND` has to be, one part of `OR`."""
    if name in KNOWN:
        return True
    parts = re.split(r"\s+AND\s+|,\s*", licence)
    return bool(licence) and all(
        any(word.lower() in choice.lower() and "GPL" not in choice for word in ALLOWED for choice in part.split(" OR "))
        for part in parts
    )


def main() -> int:
    named = {re.sub(r"[-_.]+", "-", str(d.metadata["Name"])).lower(): d for d in distributions()}
    refused = []
    for name, found in sorted(named.items()):
        if name in _TOOLS:
            continue
        licence = licence_of(found)
        why = f"  ({KNOWN[name]})" if name in KNOWN else ""
        print(f"{name} {found.version}: {licence or 'not stated'}{why}")
        if not is_allowed(name, licence):
            refused.append(f"{name} ({licence or 'not stated'})")
    if refused:
        print(f"not allowed: {', '.join(refused)}; see .ci/licences.py", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
