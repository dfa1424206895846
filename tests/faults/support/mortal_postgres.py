"""A PostgreSQL that loses nothing when it dies, and one that may take its place."""

import os
import signal
import subprocess
from contextlib import suppress
from urllib.parse import urlsplit

from skep.db.embedded.launcher import EmbeddedPostgres
from skep.db.embedded.programs import Programs, choose_account, find_binaries
from tests.support.ports import free_port
from tests.support.postgres import DURABLE, chosen_binaries

FAST, IMMEDIATE, KILL = signal.SIGINT, signal.SIGQUIT, signal.SIGKILL


class MortalPostgres:
    """A server that can be ended in any way and started again, on the same port."""

    def __init__(self, data_dir, **parameters):
        self.data_dir = data_dir
        self._server = EmbeddedPostgres(
            data_dir,
            port=free_port(),
            parameters={**DURABLE, **parameters},
            binaries=chosen_binaries(),
        )
        self._is_running = False

    @property
    def dsn(self):
        return self._server.dsn

    @property
    def port(self):
        return urlsplit(self.dsn).port

    def start(self):
        if not self._is_running:
            self._server.start()
            self._is_running = True

    def end(self, how=KILL):
        """Send the postmaster this signal, and wait until nothing is left of the server."""
        with suppress(ProcessLookupError):
            os.kill(self._server.pid, how)
        self._server.stop()
        self._is_running = False

    def stop(self):
        if self._is_running:
            self.end(FAST)


class Standby:
    """A server that follows a primary until it is promoted."""

    def __init__(self, primary, data_dir):
        self._programs = Programs(find_binaries(chosen_binaries()), choose_account())
        self._primary = primary
        self._data = data_dir / "data"
        self._log = data_dir / "standby.log"
        self.port = free_port()
        data_dir.mkdir(mode=0o711)
        self._programs.account.own(data_dir)

    def start(self):
        """Copy the running primary, and follow it."""
        address = urlsplit(self._primary.dsn)
        # The password lies in the settings of the standby, as it does in production.
        source = (
            f"host={address.hostname} port={address.port} user={address.username} "
            f"password={address.password} application_name=standby"
        )
        self._programs.run(
            "pg_basebackup",
            f"--pgdata={self._data}",
            f"--dbname={source}",
            "--write-recovery-conf",
            "--wal-method=stream",
            "--checkpoint=fast",
        )
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
        self._control("start", "-l", str(self._log), "-o", options)

    def promote(self):
        """Become the primary."""
        self._control("promote")

    def stop(self):
        if (self._data / "postmaster.pid").exists():
            self._control("stop", "-m", "immediate")

    def _control(self, *words):
        self._programs.run("pg_ctl", "-D", str(self._data), "--wait", *words)


def mount_small_disk(directory, *, size_mib):
    """Mount a disk of this size where this account may; return whether it could."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=0777", "tmpfs", str(directory)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def unmount(directory):
    """Take a disk away, whoever still dies on it."""
    subprocess.run(["umount", "--lazy", str(directory)], check=True, capture_output=True)
