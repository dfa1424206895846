"""The directory of an embedded server: its files, its locks, how it is made.

    <home>/data          PostgreSQL's data directory, of the account that runs the server
    <home>/password      the password of the role `skep`, mode 0600, made with the data
    <home>/port          where the server listened last, so that its address stays the same
    <home>/server.log    the server's log since its last start; before that: server.log.old
    <home>/owner.lock    locked by the process that started the server
    <home>/server.lock   locked by the server and its children, through a descriptor they inherit

A cluster appears whole or not at all: it is made under another name and renamed. Nothing outside
`home` is created or changed. `launcher` starts and ends processes.
"""

import fcntl
import os
import secrets
import shutil
from collections import deque
from pathlib import Path

from skep.db.embedded.programs import Account, Programs
from skep.model.errors import Refused

DATABASE = "skep"
ROLE = "skep"

_LOG_TAIL_LINES = 20
# The lines of postmaster.pid that pg_ctl reads too.
_PID_LINE = 0
_PORT_LINE = 3
_STATUS_LINE = 7


class DataDirectoryInUse(Refused):
    """Another process runs a server on this data directory."""

    code = "data_directory_in_use"


class DataDirectoryUnusable(Refused):
    """The PostgreSQL at hand cannot use this data directory."""

    code = "data_directory_unusable"


class ClusterDirectory:
    """One embedded server's directory."""

    def __init__(self, home: Path) -> None:
        self.home = home.absolute()
        self.data = self.home / "data"
        self._password_file = self.home / "password"
        self._port_file = self.home / "port"
        self._log = self.home / "server.log"

    @property
    def password(self) -> str:
        """The password of the role `skep`."""
        return self._password_file.read_text()

    def prepare(self, account: Account) -> None:
        """Make the directory if it is missing, and make sure that `account` can reach it.

        Raises:
            DataDirectoryUnusable: it cannot; the message says what to do.
        """
        try:
            self._make_home(account)
        except OSError as error:
            raise DataDirectoryUnusable(f"cannot make {self.home}: {error.strerror}") from error
        if not os.access(self.home, os.W_OK):
            raise DataDirectoryUnusable(f"{self.home} is not ours to write: choose another one")
        if closed := account.first_closed_directory(self.home):
            raise DataDirectoryUnusable(
                f"PostgreSQL does not run as root, and the account {account.name} cannot enter "
                f"{closed} on the way to {self.home}: choose another data directory (such as "
                f"/var/lib/skep), start skep as an ordinary user, or `chmod o+x {closed}`"
            )

    def _make_home(self, account: Account) -> None:
        if not self.home.exists():
            self.home.mkdir(parents=True, mode=0o700)
            if account.uid is not None:
                # It stays ours, so that the server's account cannot replace our files, but lets
                # that account pass to its data.
                self.home.chmod(0o711)

    def lock_for_owner(self) -> int:
        """Take the owner's lock; closing the returned descriptor, or dying, gives it back.

        Raises:
            DataDirectoryInUse: another process has it.
        """
        lock = _try_lock(self.home / "owner.lock")
        if lock is None:
            raise DataDirectoryInUse(
                f"another process runs a server on {self.home}: stop that one first, or choose "
                "another data directory"
            )
        return lock

    def try_lock_for_server(self) -> int | None:
        """Take the server's lock, or return None while any process of a server is alive."""
        return _try_lock(self.home / "server.lock")

    def require_cluster(self, programs: Programs, *, is_durable: bool) -> None:
        """Make the cluster if there is none, else make sure that these programs can run it.

        Raises:
            DataDirectoryUnusable: it is of another major version, or of another account.
        """
        if self.data.exists():
            self._check_owner(programs.account)
            self._check_version(programs)
        else:
            self._make_cluster(programs, is_durable=is_durable)

    def _check_owner(self, account: Account) -> None:
        uid = os.geteuid() if account.uid is None else account.uid
        owner = self.data.stat().st_uid
        if owner != uid:
            raise DataDirectoryUnusable(
                f"{self.data} belongs to the user id {owner}, but PostgreSQL would run as "
                f"{account.name} ({uid}): start skep as the user who made it"
            )

    def _check_version(self, programs: Programs) -> None:
        version_file = self.data / "PG_VERSION"
        if not version_file.is_file():
            raise DataDirectoryUnusable(f"{self.data} holds something else than a cluster")
        made_by, at_hand = version_file.read_text().strip(), str(programs.major_version())
        if made_by != at_hand:
            raise DataDirectoryUnusable(
                f"{self.data} was made by PostgreSQL {made_by}, but the programs in "
                f"{programs.directory} are {at_hand}. Nothing was changed. Either name the "
                f"directory of PostgreSQL {made_by} programs, or upgrade: dump with pg_dump of "
                f"{made_by}, move {self.home} away, start skep, restore the dump"
            )

    def _make_cluster(self, programs: Programs, *, is_durable: bool) -> None:
        unfinished = self.home / "data.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        programs.account.own(unfinished)
        self._write_password(programs.account)
        programs.run(
            "initdb",
            f"--pgdata={unfinished}",
            f"--username={ROLE}",
            f"--pwfile={self._password_file}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--data-checksums",
            "--no-instructions",
            *_locale_options(programs.major_version()),
            *([] if is_durable else ["--no-sync"]),
        )
        # In single-user mode, so that the default database exists before anyone can connect.
        programs.run(
            "postgres", "--single", "-D", str(unfinished), "postgres",
            feed=f"create database {DATABASE}\n",
        )  # fmt: skip
        unfinished.rename(self.data)

    def _write_password(self, account: Account) -> None:
        # Unlinked first: the mode given to os.open counts only for a file that it makes.
        self._password_file.unlink(missing_ok=True)
        descriptor = os.open(self._password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(24))
            file.flush()
            # A cluster that outlives a power failure without its password would be lost.
            os.fsync(descriptor)
        account.own(self._password_file)

    def postmaster_pid(self) -> int | None:
        """Return the process id that the last server wrote down, alive or not."""
        line = self._postmaster_line(_PID_LINE)
        return int(line) if line else None

    def is_ready(self, pid: int) -> bool:
        """Say whether the server `pid` takes connections."""
        return self.postmaster_pid() == pid and self._postmaster_line(_STATUS_LINE) == "ready"

    def running_dsn(self) -> str | None:
        """Return the URL of the server that runs here, password included; None if none does."""
        port, pid = self._postmaster_line(_PORT_LINE), self.postmaster_pid()
        if port is None or pid is None or not self.is_ready(pid):
            return None
        return f"postgresql://{ROLE}:{self.password}@127.0.0.1:{port}/{DATABASE}"

    def last_port(self) -> int:
        """Return the port that the last server listened on, or 0."""
        try:
            return int(self._port_file.read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def keep_port(self, port: int) -> None:
        """Note the port for the next start."""
        self._port_file.write_text(f"{port}\n")

    def forget_postmaster(self) -> None:
        """Remove what the last server wrote down; only for a server that is known to be gone."""
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def _postmaster_line(self, number: int) -> str | None:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        return lines[number].strip() if number < len(lines) else None

    def open_log(self) -> int:
        """Begin a new log, keep the one before, and return a descriptor to write to."""
        if self._log.exists():
            self._log.replace(self._log.with_suffix(".log.old"))
        return os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        with self._log.open(errors="replace") as file:
            return "".join(deque(file, maxlen=_LOG_TAIL_LINES)).strip()


def _locale_options(major_version: int) -> list[str]:
    # The built-in C.UTF-8 does not depend on the system's C library, neither for existing nor for
    # staying the same; before 17 only the library's has it.
    if major_version >= 17:
        return ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    return ["--locale=C.UTF-8"]


def _try_lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
