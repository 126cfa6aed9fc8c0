"""Builds the site of docs/: `python .ci/site.py FOLDER [VERSION]`, with mkdocs-material, by `.ci/run site`.

The README of the repository is its first page, and `docs/README.md` its overview. Each version has a folder of its own
in FOLDER, which stays when another is built. Links inside are checked by mkdocs; that a page fetches nothing from
elsewhere is checked here.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FIRST, OVERVIEW = "index.md", "overview.md"
_LINK = re.compile(r"(?<=\]\()(?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=\))")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"(https?:)?//|<link\b[^>]*rel=\"(?:stylesheet|preconnect|preload)\"[^>]*"
    r"href=\"(https?:)?//|url\((?:https?:)?//|@import"
)


def page_of(folder: Path, target: str) -> str | None:
    """The page or file of the site that a link in a folder of the repository leads to; None where it has none."""
    found = (folder / target).resolve()
    if found == ROOT / "README.md":
        return FIRST
    if found == ROOT / "docs" / "README.md" or found == ROOT / "docs":
        return OVERVIEW
    docs = ROOT / "docs"
    return str(found.relative_to(docs)) if found.is_file() and found.is_relative_to(docs) else None


def as_page(text: str, folder: Path) -> str:
    """A page of the repository as one of the site. What it links to outside of the pages is named, and not linked."""

    def linked(match: re.Match[str]) -> str:
        found = page_of(folder, match["target"])
        return f"{found}{match['anchor'] or ''}" if found else f"{match['target']}{_OUTSIDE}"

    parts = _FENCE.split(text)
    parts[::2] = [re.sub(r"\[([^\]]*)\]\([^)\s]*" + _OUTSIDE + r"\)", r"\1", _LINK.sub(linked, p)) for p in parts[::2]]
    return "".join(parts)


_OUTSIDE = "%outside%"


def build(target: Path, version: str) -> None:
    """Builds one version into its folder. Raises CalledProcessError for a broken link, SystemExit for a remote file."""
    with tempfile.TemporaryDirectory(prefix="bucketline-site-") as scratch:
        pages = Path(scratch, "pages")
        pages.mkdir()
        (pages / FIRST).write_text(as_page((ROOT / "README.md").read_text(), ROOT))
        for page in (ROOT / "docs").iterdir():
            name = OVERVIEW if page.name == "README.md" else page.name
            if page.suffix == ".md":
                (pages / name).write_text(as_page(page.read_text(), ROOT / "docs"))
            elif page.is_file():
                shutil.copy(page, pages)
            else:
                shutil.copytree(page, pages / page.name)
        shutil.copy(ROOT / ".ci" / "mkdocs.yml", scratch)
        built = Path(scratch, "site")
        command = [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "-q",
            "-f",
            f"{scratch}/mkdocs.yml",
            "-d",
            str(built),
        ]
        subprocess.run(command, check=True)
        remote = [str(p.relative_to(built)) for p in built.rglob("*.html") if _FETCHED.search(p.read_text())]
        if remote:
            raise SystemExit(f"pages that fetch from elsewhere: {', '.join(remote)}")
        assert (built / "search" / "search_index.json").exists(), "the site can be searched"
        shutil.rmtree(target / version, ignore_errors=True)
        shutil.copytree(built, target / version)
    versions = sorted((p.parent.name for p in target.glob("*/index.html")), reverse=True)
    listed = [{"version": v, "title": v, "aliases": []} for v in versions]
    (target / "versions.json").write_text(json.dumps(listed))
    (target / "index.html").write_text(f'<meta http-equiv="refresh" content="0; url={versions[0]}/index.html">\n')
    print(
        f"{len(list((target / version).rglob('*.html')))} pages in {target / version}; versions: {', '.join(versions)}"
    )


if __name__ == "__main__":
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    build(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else stated)
