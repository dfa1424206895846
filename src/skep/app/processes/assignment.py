"""What the supervisor hands to a worker process: sockets, settings, and where to begin.

An assignment is made once per worker slot and outlives the processes that fill the slot: the
sockets are bound in the supervisor, so a restarted worker uses the same ports as its predecessor,
and a wrong address is reported before anything starts. It travels by `multiprocessing` (which
passes the descriptors), never by a command line, because the DSN may contain a password.

The supervisor imports this module too: it must not import the broker.
"""

import errno
import logging
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Final, TypeAlias

from skep.model.errors import Refused
from skep.settings import Settings
from skep.telemetry.logs import configure_logging

_log = logging.getLogger(__name__)

BACKLOG: Final = 2048
"""Connections the kernel holds while every worker is busy; the kernel may lower it."""

WAKEUP_TOKEN_BYTES: Final = 16

PORT_PATIENCE_S: Final = 3.0
"""How long to wait for a port that is in use: the workers of a killed supervisor are ending."""

PORT_PAUSE_S: Final = 0.05


class SettingsUpdates:
    """Passes changed settings from the thread that receives them to the event loop.

    The last settings that arrive before there is a listener are kept for it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._listener: Callable[[Settings], object] | None = None
        self._missed: Settings | None = None

    def deliver(self, settings: Settings) -> None:
        """Pass settings to the listener, or keep them for it."""
        with self._lock:
            if self._listener is None:
                self._missed = settings
            else:
                self._listener(settings)

    def listen(self, listener: Callable[[Settings], object]) -> None:
        """Call `listener` with all further settings, on the thread that delivers them."""
        with self._lock:
            self._listener = listener
            if self._missed is not None:
                listener(self._missed)
                self._missed = None

    def close(self) -> None:
        """Remove the listener."""
        with self._lock:
            self._listener = None


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

    handover_socket: socket.socket | None = field(default=None, repr=False)
    """Where other workers send connections; None with a single worker."""

    handover_sockets: tuple[socket.socket, ...] = field(default=(), repr=False)
    """What to send to each worker by, by index, this one included."""

    peer_socket: socket.socket | None = field(default=None, repr=False)
    """The UDP socket for notices of other instances; only the first worker has it."""

    updates: SettingsUpdates | None = field(default=None, repr=False)
    """Changed settings. It is made in the worker's process and never travels."""

    wakeup_token: bytes = field(repr=False)
    """Random bytes that every genuine wake-up datagram of this instance begins with."""

    runtime_dir: Path | None = None
    """Where the workers of this instance exchange metrics; removed when it ends."""


ReportReady: TypeAlias = Callable[[], None]
"""Called once the worker accepts connections; later exits are not start-up failures."""

WorkerTarget: TypeAlias = Callable[[WorkerAssignment, ReportReady], None]
"""What a worker process runs: block until SIGTERM, drain, return. Must be importable by name."""


class CannotListen(Refused):
    """The broker cannot listen on this address."""

    code = "cannot_listen"


def bind_listener(host: str, port: int) -> socket.socket:
    """Return a listening socket on the first address of `host`."""
    try:
        return _bind_patiently(host, port, socket.SOCK_STREAM, PORT_PATIENCE_S)
    except OSError as error:
        raise CannotListen(_explain(host, port, error)) from error


def _bind_patiently(
    host: str, port: int, kind: socket.SocketKind, patience_s: float
) -> socket.socket:
    """Bind a socket; wait for a port that is in use, as it is while a predecessor ends."""
    began_at, is_told = time.monotonic(), False
    while True:
        try:
            return _bind(host, port, kind)
        except OSError as error:
            waited_s = time.monotonic() - began_at
            if error.errno != errno.EADDRINUSE or waited_s >= patience_s:
                raise
        if waited_s >= PORT_PATIENCE_S and not is_told:
            is_told = True
            _log.warning("port %d on %s is in use; waiting up to %g s", port, host, patience_s)
        Event().wait(PORT_PAUSE_S)


def _bind(host: str, port: int, kind: socket.SocketKind) -> socket.socket:
    family, _, protocol, _, address = socket.getaddrinfo(
        host, port, type=kind, flags=socket.AI_PASSIVE
    )[0]
    with ExitStack() as on_failure:
        bound = on_failure.enter_context(socket.socket(family, kind, protocol))
        if kind == socket.SOCK_STREAM:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        if kind == socket.SOCK_STREAM:
            bound.listen(BACKLOG)
        bound.setblocking(False)
        on_failure.pop_all()
        return bound


def _explain(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use: stop the program that listens there, "
            "or choose another port with --port"
        )
    if error.errno == errno.EACCES:
        return f"no permission to listen on port {port}: choose one above 1023 with --port"
    return f"cannot listen on {host}, port {port}: {error.strerror}; change --host"


def assign_workers(
    settings: Settings,
    *,
    dsn: str,
    listener: socket.socket,
    origins: Mapping[str, str] | None = None,
    runtime_dir: Path | None = None,
) -> list[WorkerAssignment]:
    """Make one assignment per worker, each with its own loopback wake-up socket."""
    with ExitStack() as on_failure:
        peer_socket = _bind_peer_socket(settings)
        if peer_socket is not None:
            on_failure.enter_context(peer_socket)
        wakeups = [
            on_failure.enter_context(_bind("127.0.0.1", 0, socket.SOCK_DGRAM))
            for _ in range(settings.worker_count)
        ]
        handovers = _bind_handovers(settings.worker_count, on_failure)
        on_failure.pop_all()
    ports = tuple(wakeup.getsockname()[1] for wakeup in wakeups)
    token = secrets.token_bytes(WAKEUP_TOKEN_BYTES)
    return [
        WorkerAssignment(
            index=index,
            settings=settings,
            origins=origins or {},
            dsn=dsn,
            listener=listener,
            wakeup_socket=wakeup,
            wakeup_ports=ports,
            wakeup_token=token,
            runtime_dir=runtime_dir,
            handover_socket=handovers[index][1] if handovers else None,
            handover_sockets=tuple(sending for sending, _ in handovers),
            peer_socket=peer_socket if index == 0 else None,
        )
        for index, wakeup in enumerate(wakeups)
    ]


def _bind_handovers(count: int, on_failure: ExitStack) -> list[tuple[socket.socket, socket.socket]]:
    """Make a pair of sockets per worker, to send to it by and to receive by."""
    if count == 1:
        return []
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(count)]
    for pair in pairs:
        for each in pair:
            on_failure.enter_context(each)
    return pairs


def _bind_peer_socket(settings: Settings) -> socket.socket | None:
    """Bind the UDP socket for notices of other instances, if peers are configured."""
    if not (settings.peers or settings.peer_secret):
        return None
    host, port = settings.host, settings.peer_port
    try:
        # A worker may use all its grace to end.
        patience_s = max(PORT_PATIENCE_S, settings.shutdown_grace_s)
        return _bind_patiently(host, port, socket.SOCK_DGRAM, patience_s)
    except OSError as error:
        raise CannotListen(
            f"cannot listen for other instances on {host}, UDP port {port}: {error.strerror}; "
            "change peer_port"
        ) from error


def work(assignment: WorkerAssignment, report_ready: ReportReady) -> None:
    """Run a worker of the broker until SIGTERM."""
    # Imported in the worker only: it would treble the memory of the supervisor.
    from skep.app.processes.worker import run_worker_process  # noqa: PLC0415

    settings = assignment.settings
    configure_logging(level=settings.log_level, style=settings.log_format, worker=assignment.index)
    # uvicorn handles the signal while it serves, and then raises it again for this handler. The
    # exception unwinds, so that the broker is closed.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    run_worker_process(assignment, report_ready)
