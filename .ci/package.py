"""Builds the wheel and the sdist, twice: `python .ci/package.py FOLDER`, by `.ci/run package`.

Each build is made in a clone of its own, whose files have other times. Both have to be the same bytes.
"""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_BUILD = (
    "import sys; sys.path.insert(0, '.ci/wheel'); import copying_backend as b; getattr(b, sys.argv[1])(sys.argv[2])"
)


def build(tree: Path, target: Path) -> dict[str, str]:
    """Builds both from a folder; the digest of each by its name."""
    target.mkdir(parents=True, exist_ok=True)
    for hook in ("build_wheel", "build_sdist"):
        command = [sys.executable, "-c", _BUILD, hook, str(target.resolve())]
        subprocess.run(command, cwd=tree, check=True, stdout=subprocess.DEVNULL)
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(target.iterdir())}


def main(target: Path) -> int:
    for old in target.glob("bucketline-*"):
        old.unlink()
    if _git("status", "--porcelain"):
        print("files differ from the commit: what is built is the commit, without them", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="bucketline-build-") as scratch:
        for tree in ("first", "second"):
            _git("clone", "-q", str(ROOT), f"{scratch}/{tree}")
        first = build(Path(scratch, "first"), target)
        second = build(Path(scratch, "second"), Path(scratch, "built"))
    for name, digest in first.items():
        print(f"{digest}  {name}")
    if first != second:
        print(f"the same commit gave other bytes: {second}", file=sys.stderr)
        return 1
    return 0


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
