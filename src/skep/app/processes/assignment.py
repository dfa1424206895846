"""What the supervisor hands to one worker process, and how the process reports back.

An assignment is made once per worker slot and outlives the processes that fill the slot: the
sockets are bound in the supervisor, so a restarted worker listens on the same port and hears its
peers on the same loopback port as the one that died. It travels by `multiprocessing` (which
passes the descriptors), never by a command line, because the DSN may carry a password.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from skep.app.processes.settings_updates import SettingsNews
    from skep.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAssignment:
    """One worker's place among its peers. The worker owns its copies of the sockets."""

    index: int
    """Position among the workers, from 0. Stable over restarts."""

    settings: Settings = field(repr=False)
    """The effective settings, the same for every worker."""

    origins: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Where the value of each setting comes from."""

    dsn: str = field(repr=False)
    """The database to use; with an embedded PostgreSQL this is not `settings.database_url`."""

    listener: socket.socket = field(repr=False)
    """The bound and listening TCP socket all workers accept from. Non-blocking."""

    wakeup_socket: socket.socket = field(repr=False)
    """This worker's own UDP socket, bound to `wakeup_ports[index]` on 127.0.0.1. Non-blocking."""

    wakeup_ports: tuple[int, ...]
    """The loopback UDP port of every worker, by index, this one included."""

    peer_socket: socket.socket | None = field(default=None, repr=False)
    """The UDP socket on which this instance hears others; only its first worker has it."""

    news: SettingsNews | None = field(default=None, repr=False)
    """Tells of changed settings. It is made in the worker's process and never travels."""

    wakeup_token: bytes = field(repr=False)
    """Random bytes that every genuine wake-up datagram of this instance begins with."""

    runtime_dir: Path | None = None
    """Where the workers of this instance show each other their metrics; gone when it ends."""


ReportReady: TypeAlias = Callable[[], None]
"""Called by a worker once it accepts connections; later deaths are not start-up failures."""

WorkerTarget: TypeAlias = Callable[[WorkerAssignment, ReportReady], None]
"""What a worker process runs: block until SIGTERM, drain, return. Must be importable by name."""
