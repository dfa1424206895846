"""A broker that can be killed, and comes back on the same port with the same database."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress

from tests.support.ports import free_port


class MortalBroker:
    """A `skep serve` with all its processes, which die together."""

    def __init__(self, database_url):
        self._database_url = database_url
        self._process = None
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self):
        """Start, and return once it listens."""
        command = [sys.executable, "-m", "skep", "serve", "--port", str(self._port)]
        command += ["--workers", "1", "--database-url", self._database_url]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        for line in self._process.stdout:
            if re.search(r"listens on http", line):
                return
        raise AssertionError("skep serve did not start")

    def kill(self):
        """End all its processes at once, in the middle of whatever they do."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process.stdout.close()
            self._process = None
