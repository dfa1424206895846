"""Where the files of the lake lie: a directory, an object store, HDFS.

Addresses are resolved by pyiceberg's file interface, which uses the file systems of PyArrow, so
that catalog, writers and readers agree on every address and every property. On a local disk a file
is forced to the disk before it gets its name: the database forgets messages for its sake.
"""

import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pyarrow import fs as _filesystems
from pyiceberg.io.pyarrow import PyArrowFileIO

from skep.model.errors import BadRequest
from skep.spark.runtime.arrow import pa

SCHEMES: Final = ("file", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "hdfs", "viewfs")
PARTIAL: Final = ".partial"
"""What the name of a local file ends with until it is complete."""

arrow_filesystems: Final[Any] = _filesystems


class InvalidWarehouse(BadRequest):
    """This is no place for the files of the lake."""


def warehouse_address(text: str) -> str:
    """Return an absolute address; raise `InvalidWarehouse` if it cannot be a warehouse."""
    if not text or "?" in text or "#" in text:
        raise InvalidWarehouse(f"{text!r} is not the address of a warehouse")
    if "://" not in text:
        return f"file://{Path(text).absolute()}"
    parts = urlsplit(text)
    if parts.scheme not in SCHEMES:
        raise InvalidWarehouse(
            f"a warehouse cannot be at {parts.scheme}://; it is a directory, or an address that "
            f"begins with one of {', '.join(SCHEMES)}"
        )
    if not parts.netloc and parts.scheme not in ("file", "hdfs", "viewfs"):
        raise InvalidWarehouse(f"the address {text!r} of the warehouse names no bucket")
    return text.rstrip("/")


def storage_properties(text: str | None) -> dict[str, str]:
    """Read `name=value,name=value`; raise `InvalidWarehouse` without the values, maybe secrets."""
    properties: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in (text or "").split(","))):
        name, is_given, value = part.partition("=")
        if not is_given or not name.strip():
            raise InvalidWarehouse(
                "the storage of the archive is described as name=value, with commas between, such "
                "as s3.endpoint=http://host:9000,s3.region=eu-west-1"
            )
        properties[name.strip()] = value.strip()
    return properties


class Storage:
    """Files by their addresses."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties: Final = dict(properties)
        self._io: Final[Any] = PyArrowFileIO(self.properties)

    def place(self, address: str) -> tuple[Any, str]:
        """Return the file system of an address, and the path in it."""
        scheme, netloc, path = PyArrowFileIO.parse_location(address, self.properties)
        return self._io.fs_by_scheme(scheme, netloc), path

    @contextmanager
    def create(self, address: str) -> Generator[Any]:
        """Open a file for writing; it has its name, and its content, only if all goes well.

        An object store shows an object when it is complete. There a failure may leave a torn one,
        to which nothing refers.
        """
        filesystem, path = self.place(address)
        if not is_local(address):
            with filesystem.open_output_stream(path) as stream:
                yield stream
            return
        partial = Path(path + PARTIAL)
        partial.parent.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(partial), "wb") as stream:
            yield stream
        _force(partial)
        partial.replace(path)
        _force(partial.parent)

    def read(self, address: str) -> Any:
        """Open a file for reading; to be closed."""
        filesystem, path = self.place(address)
        return filesystem.open_input_file(path)

    def force(self, addresses: Iterable[str]) -> None:
        """Make sure that files survive a crash of the machine; object stores do by themselves."""
        directories: set[Path] = set()
        for address in filter(is_local, addresses):
            path = Path(self.place(address)[1])
            _force(path)
            directories.add(path.parent)
        for directory in directories:
            _force(directory)

    def list(self, address: str, *, older_than: datetime | None = None) -> list[str]:
        """Return the addresses of the files below a directory, which need not exist.

        With a moment only those that were written before; a file without a time never is.
        """
        filesystem, path = self.place(address)
        selector = arrow_filesystems.FileSelector(path, allow_not_found=True, recursive=True)
        is_file = arrow_filesystems.FileType.File
        return [
            address + each.path.removeprefix(path)
            for each in filesystem.get_file_info(selector)
            if each.type == is_file
            and (older_than is None or (each.mtime is not None and each.mtime < older_than))
        ]

    def remove(self, addresses: Iterable[str]) -> None:
        """Remove files; those that are gone already do not matter."""
        for address in addresses:
            filesystem, path = self.place(address)
            try:
                filesystem.delete_file(path)
            except FileNotFoundError:
                continue


def is_local(address: str) -> bool:
    """Tell whether a file lies on a disk of this machine, as far as the address says."""
    return address.startswith("file:") or "://" not in address


def _force(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
