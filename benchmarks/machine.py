"""The facts a reader needs to judge the figures: machine, versions, commit."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import asyncpg

_ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("skep", "uvloop", "uvicorn", "httptools", "asyncpg", "msgspec")
_SERVER_SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_compression",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
)


def machine_facts(data_dir: Path | None) -> dict[str, str | int | float]:
    """Describe the computer and how busy it was before we began."""
    facts: dict[str, str | int | float] = {
        "cpu": _first_value("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory": _first_value("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
    }
    if data_dir is not None:
        facts["filesystem"] = filesystem_of(data_dir, Path("/proc/mounts").read_text())
    return facts


def filesystem_of(path: Path, mounts: str) -> str:
    """Return the type of the file system that holds `path`: on tmpfs an fsync costs nothing."""
    best, found = "", "unknown"
    for line in mounts.splitlines():
        _, mount_point, kind, *_ = line.split()
        if path.is_relative_to(mount_point) and len(mount_point) >= len(best):
            best, found = mount_point, kind
    return found


def software_versions() -> dict[str, str]:
    """Return the versions of Python and of the packages on the hot path."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


async def postgres_facts(connection: asyncpg.Connection) -> dict[str, str]:
    """Return the version of the server and the settings that decide what a commit costs."""
    return {
        name: await connection.fetchval("select pg_catalog.current_setting($1)", name)
        for name in _SERVER_SETTINGS
    }


def source_commit() -> str:
    """Return the commit that runs, marked if the files differ from it."""
    commit = _git("rev-parse", "HEAD")
    return f"{commit} (modified)" if commit and _git("status", "--porcelain") else commit


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(_ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def _first_value(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(key):
            return line.partition(":")[2].strip()
    return "unknown"
