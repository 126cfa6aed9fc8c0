"""The output of `bucketline --version`: the release, the commit, Python and Spark."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import bucketline
from bucketline import __version__

_SHORT = 12
_COMMIT_FILE = "commit.txt"


def version_text(package: Path | None = None) -> str:
    """Returns the line that `--version` prints: the versions of bucketline, Python and Spark, and the commit from which
    bucketline was built. `package` is the folder of the package, by default that of the running package.
    """
    root = Path(bucketline.__file__).parent if package is None else package
    commit = commit_of(root)
    named = "an unknown commit" if commit is None else f"commit {commit}"
    return f"bucketline {__version__} ({named}), Python {platform.python_version()}, {_spark()}"


def commit_of(package: Path) -> str | None:
    """Returns the commit from which a package was built, or the commit of the checkout that contains it; None if
    neither is known.
    """
    built = _read(package / _COMMIT_FILE)
    if built is not None:
        commit, changed, _ = built.partition("-changed")
        return commit[:_SHORT] + changed
    git = package.parents[1] / ".git"
    head = _read(git / "HEAD") or ""
    name = head.removeprefix("ref: ")
    if name == head:
        return head[:_SHORT] or None
    packed = (line.split(" ") for line in (_read(git / "packed-refs") or "").splitlines() if line.endswith(f" {name}"))
    found = _read(git / name) or next((parts[0] for parts in packed), None)
    return None if found is None else found[:_SHORT]


def _spark() -> str:
    try:
        return f"PySpark {version('pyspark')}"
    except PackageNotFoundError:
        return "PySpark not installed"


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
