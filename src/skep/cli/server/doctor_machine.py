"""What is well and what is not with the settings, and with the machine they are for."""

import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from skep.cli.server.findings import Finding, broken, ok, warning
from skep.settings import EffectiveSettings, Settings
from skep.settings.peers import peer_addresses
from skep.settings.security import security_warnings

DISK_BYTES_WARN: Final = 5 << 30
DISK_BYTES_BROKEN: Final = 512 << 20


def judge_settings(effective: EffectiveSettings) -> Iterator[Finding]:
    """Judge the settings in force."""
    changed = sum(origin != "default" for origin in effective.origins.values())
    if effective.warnings:
        advice = "correct or remove it; `skep config` shows where each value comes from"
        yield from (warning("settings", said, advice) for said in effective.warnings)
    else:
        yield ok("settings", f"valid; {changed} differ from the defaults")
    risks = security_warnings(effective.settings)
    for risk in risks:
        said, _, advice = risk.partition(": ")
        yield warning("security", said, advice or "see the reference of security")
    if not risks:
        yield ok("security", _guarding(effective.settings))


def _guarding(settings: Settings) -> str:
    who = "callers need a token" if settings.jwt_enabled else "only this machine may call"
    return f"{who}; listening on {settings.host}, port {settings.port}"


def judge_machine(settings: Settings) -> Iterator[Finding]:
    """Judge the disks that a broker writes to, and the names of its peers."""
    from skep.app.parts.failover import spill_directory

    places = {"data_dir": settings.data_dir} if settings.database_url is None else {}
    if settings.spill_bytes_max:
        places["spill_dir"] = spill_directory(settings)
    for name, path in places.items():
        yield judge_disk(name, path)
    yield from _judge_peers(settings)


def judge_disk(name: str, path: Path) -> Finding:
    """Judge a directory: whether it can be written, and how much room there is."""
    place = _nearest_existing(path)
    topic = f"disk of {name}"
    if not os.access(place, os.W_OK | os.X_OK):
        return broken(topic, f"{path} is not ours to write", f"change its owner, or set `{name}`")
    usage = shutil.disk_usage(place)
    found = f"{usage.free / 1e9:,.1f} of {usage.total / 1e9:,.1f} GB free at {path}"
    advice = f"make room, or put `{name}` on another disk"
    if usage.free < DISK_BYTES_BROKEN:
        return broken(topic, found, advice)
    return warning(topic, found, advice) if usage.free < DISK_BYTES_WARN else ok(topic, found)


def _nearest_existing(path: Path) -> Path:
    path = path.absolute()
    return next(each for each in (path, *path.parents) if each.exists())


def _judge_peers(settings: Settings) -> Iterator[Finding]:
    addresses = peer_addresses(settings)
    if not addresses.datagrams and not addresses.urls:
        yield ok("peers", "none are named: this instance is alone, or the others name it")
    for host, port in addresses.datagrams:
        yield _judge_name(host, port)
    for url in addresses.urls:
        yield _judge_url(url)


def _judge_name(host: str, port: int) -> Finding:
    """Judge where datagrams go; whether somebody hears them cannot be seen from here."""
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as error:
        advice = "correct `peers`, or the name service"
        return broken("peers", f"{host} is not known: {error.strerror}", advice)
    return ok("peers", f"{host}, port {port}, is known by name; it is told by UDP")


def _judge_url(url: str) -> Finding:
    from skep.client import Client

    try:
        with Client(url, retries=0, timeout_s=3.0, connect_timeout_s=3.0) as client:
            version = client.health()["version"]
    except Exception as error:  # noqa: BLE001 (whatever a peer does is a finding, not our end)
        advice = "start it, or correct `peers`; deliveries are slower without it, not wrong"
        return warning("peers", f"{error}", advice)
    return ok("peers", f"{url} answers, version {version}")


def find_database(settings: Settings) -> str | Finding:
    """Return the URL of the database, or why there is none to look at."""
    if settings.database_url is not None:
        return settings.installation(settings.database_url)
    from skep.db.embedded.cluster import ClusterDirectory

    try:
        running = ClusterDirectory(settings.data_dir).running_dsn()
    except PermissionError:
        advice = "run this as the user who runs `skep serve`"
        return warning("database", f"{settings.data_dir} is not ours to read", advice)
    if running is None:
        found = f"the embedded PostgreSQL in {settings.data_dir} does not run"
        return warning("database", found, "`skep serve` starts it; or set `database_url`")
    return settings.installation(running)
