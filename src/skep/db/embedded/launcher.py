"""Run a PostgreSQL server of our own, in a directory that persists.

Promises:

* One server per directory: a second `start` is refused while the first owner lives.
* Crashes need no intervention. After kill -9 of the server, `start` waits for the last of its
  children and lets PostgreSQL recover. After kill -9 of the owner, the kernel asks the server to
  shut down (Linux, see `_end_with_owner`); elsewhere the next `start` ends the orphan.
* The server listens on the loopback address only and requires a password (file mode 0600).

Upgrades between major versions are refused, with instructions. Every call blocks: this is for
start-up and shutdown, outside the event loop.
"""

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from skep.db.embedded import cluster
from skep.db.embedded.programs import Programs, choose_account, find_binaries
from skep.model.errors import Defect, Unavailable

DEFAULT_PARAMETERS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    # TCP alone: one way in is easier to keep shut, and a socket's path may have 107 bytes at most.
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "256MB",
    # A broker writes all the time: rare checkpoints keep full-page images out of the WAL.
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    # The wheel is built without lz4 and zstd, and pglz takes more time than its disk is worth.
    "wal_compression": "off",
    "fsync": "on",
    "synchronous_commit": "on",
    "random_page_cost": "1.1",
    # Calls are short: compiling one would take longer than running it.
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}

_POLL_S = 0.02
_PORT_ATTEMPTS = 3
_SERVER_PROGRAMS = frozenset({"postgres", "postmaster"})
# Fast shutdown ends sessions and writes a checkpoint. Immediate shutdown leaves that to recovery;
# the server kills children that linger for 5 s.
_SHUTDOWNS = ((signal.SIGINT, 30.0), (signal.SIGQUIT, 15.0))


class PostgresDidNotStart(Unavailable):
    """The embedded PostgreSQL did not start."""

    code = "postgres_did_not_start"


class _PortTaken(PostgresDidNotStart):
    """Another process took the port between choosing and binding it."""


class EmbeddedPostgres:
    """A PostgreSQL server on one data directory; start and stop it as often as you like.

    Args:
        data_dir: created if missing; see `ClusterDirectory`.
        port: where to listen; 0 takes the port of the last start if it is free, else another.
        parameters: server parameters, over `DEFAULT_PARAMETERS`.
        binaries: the directory of PostgreSQL's programs; default: see `find_binaries`.
        start_s_max: how long a start may take, recovery after a crash included.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int = 0,
        parameters: Mapping[str, str] | None = None,
        binaries: Path | None = None,
        start_s_max: float = 300.0,
    ) -> None:
        self._directory = cluster.ClusterDirectory(data_dir)
        self._wanted_port = port
        self._port = port
        self._parameters = {**DEFAULT_PARAMETERS, **(parameters or {})}
        self._binaries = binaries
        self._start_s_max = start_s_max
        self._process: subprocess.Popen[bytes] | None = None
        self._ownership = ExitStack()

    @property
    def dsn(self) -> str:
        """The URL of the database, password included; valid while the server runs."""
        password = self._directory.password
        return f"postgresql://{cluster.ROLE}:{password}@127.0.0.1:{self._port}/{cluster.DATABASE}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise Defect("the embedded PostgreSQL is not running")
        return self._process.pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Make the cluster if there is none, start the server, wait until it takes connections.

        Raises:
            DataDirectoryInUse: another process owns a server on this directory.
            DataDirectoryUnusable: another major version, another owner, or out of reach.
            PostgresDidNotStart: the message ends with the last lines of the server's log.
        """
        if self._process is not None:
            raise Defect("the embedded PostgreSQL is running already")
        programs = Programs(find_binaries(self._binaries), choose_account())
        self._directory.prepare(programs.account)
        with ExitStack() as ownership:
            ownership.callback(os.close, self._directory.lock_for_owner())
            self._end_leftovers()
            is_durable = self._parameters["fsync"] != "off"
            self._directory.require_cluster(programs, is_durable=is_durable)
            self._process = self._launch(programs)
            self._ownership = ownership.pop_all()

    def stop(self) -> None:
        """Shut the server down; do nothing when it is not running."""
        if self._process is None:
            return
        _end(self._process)
        self._process = None
        self._ownership.close()

    def _end_leftovers(self) -> None:
        """End a server whose owner was killed, or wait for the children of a killed server."""
        if not self._is_server_gone(within_s=0):
            self._end_orphan()
        pid = self._directory.postmaster_pid()
        program = None if pid is None else _program_of(pid)
        if program is not None and program not in _SERVER_PROGRAMS:
            # Another program has this process id now, as happens after a restart in a container,
            # and PostgreSQL would not start while it is alive.
            self._directory.forget_postmaster()

    def _end_orphan(self) -> None:
        for request, patience_s in _SHUTDOWNS:
            pid = self._directory.postmaster_pid()
            if pid is not None and _program_of(pid) in {*_SERVER_PROGRAMS, None}:
                with suppress(ProcessLookupError):
                    os.kill(pid, request)
            if self._is_server_gone(within_s=patience_s):
                return
        raise cluster.DataDirectoryInUse(
            f"a server that was left running on {self._directory.home} does not shut down: end "
            "the processes that hold server.lock in it"
        )

    def _is_server_gone(self, *, within_s: float) -> bool:
        deadline = time.monotonic() + within_s
        while (lock := self._directory.try_lock_for_server()) is None:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        os.close(lock)
        return True

    def _launch(self, programs: Programs) -> subprocess.Popen[bytes]:
        self._port = self._port or self._directory.last_port()
        for _ in range(_PORT_ATTEMPTS):
            self._port = self._port or _free_port()
            with suppress(_PortTaken):
                process = self._launch_once(programs)
                self._directory.keep_port(self._port)
                return process
            self._port = 0
        raise PostgresDidNotStart(f"every port was taken: {self._directory.log_tail()}")

    def _launch_once(self, programs: Programs) -> subprocess.Popen[bytes]:
        with ExitStack() as ours:
            # The server inherits log and lock; our own descriptors of them close in any case.
            log = self._directory.open_log()
            ours.callback(os.close, log)
            lock = self._directory.try_lock_for_server()
            assert lock is not None, "the owner alone starts servers, and the last one is gone"
            ours.callback(os.close, lock)
            process = programs.spawn(
                [*_end_with_owner(programs), *self._command(programs)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                pass_fds=(lock,),
            )
        try:
            self._await_ready(process)
        except BaseException:
            _end(process)
            raise
        return process

    def _command(self, programs: Programs) -> list[str]:
        command = [str(programs.directory / "postgres"), "-D", str(self._directory.data)]
        for name, value in {**self._parameters, "port": str(self._port)}.items():
            command += ["-c", f"{name}={value}"]
        return command

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._start_s_max
        while not self._directory.is_ready(process.pid):
            with suppress(subprocess.TimeoutExpired):
                raise self._why_it_ended(process.wait(timeout=_POLL_S))
            if time.monotonic() >= deadline:
                raise PostgresDidNotStart(
                    f"PostgreSQL was not ready within {self._start_s_max:g} s; its log ends:\n"
                    f"{self._directory.log_tail()}"
                )

    def _why_it_ended(self, exit_code: int) -> PostgresDidNotStart:
        tail = self._directory.log_tail()
        is_port_taken = not self._wanted_port and "could not create any TCP/IP sockets" in tail
        kind = _PortTaken if is_port_taken else PostgresDidNotStart
        return kind(f"PostgreSQL ended at once with {exit_code}; its log ends:\n{tail}")


def _end(process: subprocess.Popen[bytes]) -> None:
    for request, patience_s in _SHUTDOWNS:
        process.send_signal(request)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=patience_s)
            return
    process.kill()
    process.wait()


def _program_of(pid: int) -> str | None:
    """Return the program that `pid` runs, None if that is unknown, "" for a zombie."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    return Path(os.fsdecode(command.split(b"\0")[0])).name


def _end_with_owner(programs: Programs) -> list[str]:
    """Return a command prefix that shuts the server down when this process dies.

    The kernel sends the signal when the *thread* that started the server ends, so only the main
    thread may use it. `setpriv` sets it, because Python code between fork and exec may deadlock
    once other threads exist. Without the tool, the next start ends the orphan.
    """
    setpriv = shutil.which("setpriv")
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return []
    prefix = [setpriv, "--pdeathsig", "INT", "--"]
    nothing = subprocess.DEVNULL
    probe = programs.spawn([*prefix, "true"], stdin=nothing, stdout=nothing)
    return prefix if probe.wait() == 0 else []


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
