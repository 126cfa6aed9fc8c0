"""`py-files`, `job-file`: the package as a zip for Spark's --py-files, and the script for spark-submit."""

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from io import BytesIO
from pathlib import Path

import click

from bucketline import __version__
from bucketline.conf.errors import OptionError
from bucketline.streaming.cli.program import program

_ENDINGS = (".py", ".typed", ".properties", ".conf", ".yaml", ".yml")
_PACKAGES = ("bucketline", "pyspark_bucketline")
"""The package, and the module by which Spark finds its data source."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can store. With it the same files always make the same zip."""


@program.command("py-files", short_help="Prints the path of the zip for spark-submit's --py-files.")
@click.option("--directory", metavar="DIR", help="Folder for the zip; by default the user's cache folder.")
def py_files(directory: str | None) -> None:
    """Prints the path of the zip for --py-files; builds it if needed.

    Only this package is in the zip. Its dependencies contain machine code, which Python cannot import from a zip:
    install them in the environment of the workers.
    """
    click.echo(build_zip(Path(directory) if directory is not None else cache_folder()))


@program.command("job-file", short_help="Prints the path of the script for spark-submit.")
def job_file() -> None:
    """Prints the path of the script that spark-submit runs. The script takes --conf-file and runs the same job as
    `ingest`.
    """
    script = Path(str(resources.files("bucketline.streaming.submit"))) / "bucketline_ingest.py"
    if not script.is_file():
        raise OptionError(
            f"{script} is inside a zip, but spark-submit needs a file: install the package with pip", key="job-file"
        )
    click.echo(script)


def build_zip(folder: Path) -> Path:
    """Builds the zip of this package in a folder, if it does not exist, and returns its path. The name of the zip
    contains a hash of its contents.

    The zip is complete when it appears under its name, so several jobs can build it at the same time.
    """
    files = package_files()
    target = folder / f"bucketline-{__version__}-{_digest(files)}.zip"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".bucketline-", delete=False) as unfinished:
            try:
                unfinished.write(_zipped(files))
                unfinished.close()
                Path(unfinished.name).chmod(0o644)
                os.replace(unfinished.name, target)
            except BaseException:
                Path(unfinished.name).unlink(missing_ok=True)
                raise
    return target


def package_files() -> dict[str, bytes]:
    """Returns the contents of the package's files by their path in the package. The package may be installed, checked
    out from its repository, or in a zip.
    """
    files = (entry for name in _PACKAGES for entry in _files(resources.files(name), above=f"{name}/"))
    return dict(sorted(files))


def cache_folder() -> Path:
    """The user's cache folder."""
    folder = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(folder) if os.path.isabs(folder) else Path.home() / ".cache") / "bucketline"


def _files(folder: Traversable, above: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _files(entry, f"{above}{entry.name}/")
        elif entry.name.endswith(_ENDINGS) and not entry.name.startswith("."):
            yield f"{above}{entry.name}", entry.read_bytes()


def _digest(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:12]


def _zipped(files: dict[str, bytes]) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data, zipfile.ZIP_DEFLATED)
    return out.getvalue()
