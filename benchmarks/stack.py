"""What is measured: a durable PostgreSQL and a broker on it, both started here, both stopped here.

The cluster lies in a temporary directory that is removed at the end. Only the loopback address is
used. Everything blocks: this runs before and after the event loop of the runner.
"""

import os
import resource
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.errors import ServerNotReady
from benchmarks.load import Target
from benchmarks.meter import listener_of
from skep.db.embedded.launcher import EmbeddedPostgres

DEFAULT_SERVER_COMMAND = (
    "{skep} serve --port {port} --database-url {database_url} --workers {workers}"
)

# The promises under test, said aloud although they are the defaults. A thousand parked polls and
# a floor over as many connections as the load want more sessions than usual.
POSTGRES_PARAMETERS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "max_connections": "200",
}
_READY_S_MAX = 60.0
_STOP_S_MAX = 20.0
_LOG_TAIL_BYTES = 2_000


@dataclass(frozen=True, slots=True)
class Layout:
    """How many brokers share the database, and how many worker processes each has."""

    workers: int = 1
    instances: int = 1


ALONE = Layout()


@dataclass(frozen=True, slots=True)
class Stack:
    """A broker to put load on, and the database behind it."""

    target: Target
    database_url: str
    broker_pids: tuple[int, ...]
    data_dir: Path | None = None


@contextmanager
def own_stack(
    server_command: str,
    *,
    postgres_bin: Path | None = None,
    layout: Layout = ALONE,
    source: Path | None = None,
) -> Generator[Stack]:
    """Start PostgreSQL and the broker; stop both and remove their files at the end."""
    with (
        own_database(POSTGRES_PARAMETERS, postgres_bin) as database,
        own_brokers(database, server_command, layout=layout, source=source) as stack,
    ):
        yield stack


@dataclass(frozen=True, slots=True)
class Database:
    """A PostgreSQL of our own, and the folder that everything started with it lies in."""

    dsn: str
    home: Path


@contextmanager
def own_database(
    parameters: Mapping[str, str], postgres_bin: Path | None = None
) -> Generator[Database]:
    """Start PostgreSQL; stop it and remove its files at the end."""
    with tempfile.TemporaryDirectory(prefix="skep-bench-", ignore_cleanup_errors=True) as name:
        home = Path(name)
        # As root the server runs under another account, which has to reach its directory.
        home.chmod(0o755)
        with EmbeddedPostgres(
            home / "postgres", parameters=parameters, binaries=postgres_bin
        ) as postgres:
            yield Database(postgres.dsn, home)


@contextmanager
def own_brokers(
    database: Database, server_command: str, *, layout: Layout = ALONE, source: Path | None = None
) -> Generator[Stack]:
    """Start the brokers on a database; stop them at the end.

    `source` is the folder of packages that they run from, instead of this checkout's.
    """
    _allow_many_sockets()
    with ExitStack() as running:
        ports: list[int] = []
        pids: list[int] = []
        for _ in range(layout.instances):
            port = _free_port()
            broker = _broker(
                server_command,
                Target("127.0.0.1", port),
                database.dsn,
                database.home / f"broker-{port}.log",
                workers=layout.workers,
                source=source,
            )
            pids.append(running.enter_context(broker))
            ports.append(port)
        target = Target("127.0.0.1", ports[0], tuple(ports[1:]))
        yield Stack(target, database.dsn, tuple(pids), data_dir=database.home)


@contextmanager
def further_broker(stack: Stack, server_command: str) -> Generator[Target]:
    """Start another instance on the database of a stack of our own; stop it at the end."""
    assert stack.data_dir is not None, "a foreign stack has no place for the log"
    target = Target("127.0.0.1", _free_port())
    log = stack.data_dir / f"broker-{target.port}.log"
    with _broker(server_command, target, stack.database_url, log):
        yield target


def foreign_stack(url: str, database_url: str) -> Stack:
    """Describe a broker that runs already; its CPU is read if it runs on this machine."""
    _allow_many_sockets()
    parts = urlsplit(url)
    target = Target(parts.hostname or "127.0.0.1", parts.port or 6632)
    _await_ready(target, lambda: None)
    pid = listener_of(target.port)
    return Stack(target, database_url, () if pid is None else (pid,))


@contextmanager
def _broker(
    command: str,
    target: Target,
    database_url: str,
    log: Path,
    *,
    workers: int = 1,
    source: Path | None = None,
) -> Generator[int]:
    arguments = [
        part.format(
            skep=Path(sys.executable).with_name("skep"),
            python=sys.executable,
            port=target.port,
            database_url=database_url,
            workers=workers,
        )
        for part in shlex.split(command)
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=_environment(source),
            # Its own group, so that at the end nothing of it is left and nothing else is hit.
            start_new_session=True,
        )
    try:
        _await_ready(target, lambda: _check_alive(process, log))
        yield process.pid
    finally:
        _stop(process)


def _environment(source: Path | None) -> dict[str, str]:
    # A setting rather than a flag: a server of another kind has no use for it.
    environment = {**os.environ, "SKEP_MIGRATE": "always"}
    return environment if source is None else {**environment, "PYTHONPATH": str(source)}


def _check_alive(process: subprocess.Popen[bytes], log: Path) -> None:
    if process.poll() is not None:
        said = log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
        raise ServerNotReady(f"the broker ended with {process.returncode}:\n{said}")


def _await_ready(target: Target, check_alive: Callable[[], None]) -> None:
    until_s = time.monotonic() + _READY_S_MAX
    while time.monotonic() < until_s:
        check_alive()
        with suppress(urllib.error.URLError, OSError):
            address = f"http://{target.host}:{target.port}/readyz"
            with urllib.request.urlopen(address, timeout=2) as answer:
                if answer.status == 200:
                    return
        time.sleep(0.05)
    raise ServerNotReady(f"no 200 from /readyz on port {target.port} in {_READY_S_MAX:g} s")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S_MAX)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _allow_many_sockets() -> None:
    """Raise our limit of open files to what we may have; the broker and generators inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
