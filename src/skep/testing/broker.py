"""Start `skep serve` for the time of a block, and leave nothing behind."""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Final

from skep.client import AsyncClient, Client
from skep.model.errors import SkepError

START_S_MAX: Final = 120.0
"""The first start makes a database."""
STOP_S_MAX: Final = 30.0
_LOG_LINES_SHOWN: Final = 20


class BrokerNotStarted(SkepError):
    """`skep serve` did not start."""

    code = "broker_not_started"


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker that listens."""

    url: str

    def client(self) -> Client:
        """Return a blocking client of it; close it, or use it in a `with` block."""
        return Client(self.url)

    def async_client(self) -> AsyncClient:
        """Return a client on asyncio of it; close it, or use it in an `async with` block."""
        return AsyncClient(self.url)


@contextmanager
def running_broker(
    flags: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Generator[RunningBroker]:
    """Run a broker on a free port, with a database of its own that is removed at the end.

    Args:
        flags: Further flags of `skep serve`; `--database-url` uses that database instead.
        environment: All variables of the broker, instead of those of this process.

    Raises:
        BrokerNotStarted: It ended, or did not listen in time; the text has the end of its log.
    """
    home = Path(tempfile.mkdtemp(prefix="skep-testing-"))
    home.chmod(0o711)  # as root, PostgreSQL runs under another account and has to pass
    command = [sys.executable, "-m", "skep", "serve", "--port", "0", "--workers", "1"]
    command += ["--data-dir", str(home / "data"), *flags]
    try:
        with (home / "log").open("w+b") as log:
            process = subprocess.Popen(  # noqa: S603 (our own command)
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
            try:
                yield RunningBroker(_url_of(process, home / "log"))
            finally:
                _stop(process)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _url_of(process: subprocess.Popen[str], log: Path) -> str:
    """Wait for the greeting, which comes when the broker listens."""
    assert process.stdout is not None
    giving_up = Timer(START_S_MAX, process.kill)
    giving_up.start()
    try:
        for line in process.stdout:
            if found := re.search(r"listens on (http://\S+)", line):
                return found[1]
    finally:
        giving_up.cancel()
    said = log.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]
    raise BrokerNotStarted("\n".join(["skep serve did not start:", *said]))


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
