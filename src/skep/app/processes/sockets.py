"""Bind the sockets that worker processes inherit.

They are bound once, in the supervisor: a wrong address is reported before anything is started,
and neither a restarted worker nor one that is late can lose a connection or a wake-up port.
"""

import errno
import secrets
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from skep.app.processes.assignment import WorkerAssignment
from skep.model.errors import Refused
from skep.settings import Settings

BACKLOG: Final = 2048
"""Connections the kernel holds while every worker is busy; the kernel may lower it."""

WAKEUP_TOKEN_BYTES: Final = 16


class CannotListen(Refused):
    """The broker cannot listen on this address."""

    code = "cannot_listen"


def bind_listener(host: str, port: int) -> socket.socket:
    """Return a listening socket on the first address that `host` stands for.

    Raises:
        CannotListen: The port is taken, the address is not ours, or the name is unknown.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with ExitStack() as on_failure:
            listener = on_failure.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
            listener.setblocking(False)
            on_failure.pop_all()
            return listener
    except OSError as error:
        raise CannotListen(_explain(host, port, error)) from error


def _explain(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use: stop the program that listens there, "
            "or choose another with --port"
        )
    if error.errno == errno.EACCES:
        return f"this account may not listen on port {port}: choose one above 1023 with --port"
    return f"cannot listen on {host}, port {port}: {error.strerror}; choose another with --host"


def assign_workers(
    settings: Settings,
    *,
    dsn: str,
    listener: socket.socket,
    origins: Mapping[str, str] | None = None,
    runtime_dir: Path | None = None,
) -> list[WorkerAssignment]:
    """Make one assignment for each worker, with a loopback wake-up socket of its own."""
    with ExitStack() as on_failure:
        peer_socket = _bind_peer_socket(settings)
        if peer_socket is not None:
            on_failure.enter_context(peer_socket)
        wakeups = [on_failure.enter_context(_bind_wakeup()) for _ in range(settings.worker_count)]
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
            peer_socket=peer_socket if index == 0 else None,
        )
        for index, wakeup in enumerate(wakeups)
    ]


def _bind_peer_socket(settings: Settings) -> socket.socket | None:
    """Bind the UDP socket of this instance, if it has anything to do with others.

    Raises:
        CannotListen: The port is taken.
    """
    if not (settings.peers or settings.peer_secret):
        return None
    host, port = settings.host, settings.peer_port
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE
        )[0]
        with ExitStack() as on_failure:
            peer_socket = on_failure.enter_context(socket.socket(family, kind, protocol))
            peer_socket.bind(address)
            peer_socket.setblocking(False)
            on_failure.pop_all()
            return peer_socket
    except OSError as error:
        raise CannotListen(
            f"cannot hear other instances on {host}, UDP port {port}: {error.strerror}; choose "
            "another with peer_port"
        ) from error


def _bind_wakeup() -> socket.socket:
    wakeup = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    wakeup.bind(("127.0.0.1", 0))
    wakeup.setblocking(False)
    return wakeup
