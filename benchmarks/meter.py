"""What a window cost: CPU of the broker and of PostgreSQL, WAL, commits, memory.

CPU time is that of whole process trees: every live process by its own CPU clock (all threads, in
nanoseconds), plus what each parent inherited from children that ended (`cutime` and `cstime` of
`/proc/<pid>/stat`). A backend that exits during a window moves from the first part to the second,
so the sum never loses it.

Commits are counted by transaction ids handed out, not by `pg_stat_database`: sessions publish those
statistics up to a second late, and up to ten seconds after they went idle, and nobody else can make
them. A transaction id is taken by each transaction that writes, at once, on every version.
Transactions that write nothing are therefore missing; `statements` (from `pg_stat_database`) has
them, for windows in a steady state, where what is late at the end is as much as at the beginning.
PostgreSQL publishes a session's transactions only along with a table it has touched: a session that
only ever says `select 1` stays invisible.
"""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import asyncpg

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")

_SAMPLE = """
select (pg_catalog.pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint as wal_bytes,
       pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint as xid,
       (select xact_commit + xact_rollback from pg_catalog.pg_stat_database
        where datname = pg_catalog.current_database()) as transactions
"""


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The part of `/proc/<pid>/stat` that matters here."""

    pid: int
    name: str
    parent_pid: int
    cpu_ticks: int
    ended_children_ticks: int
    rss_pages: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one stat line. The name stands in brackets and may itself hold any character."""
        opening, closing = text.index("("), text.rindex(")")
        fields = text[closing + 2 :].split()
        return cls(
            pid=int(text[:opening]),
            name=text[opening + 1 : closing],
            parent_pid=int(fields[1]),
            cpu_ticks=int(fields[11]) + int(fields[12]),
            ended_children_ticks=int(fields[13]) + int(fields[14]),
            rss_pages=int(fields[21]),
        )


def tree_of(root_pid: int, processes: Iterable[ProcessStat]) -> list[ProcessStat]:
    """Return the process `root_pid` and all its descendants among `processes`."""
    children: dict[int, list[ProcessStat]] = {}
    found: list[ProcessStat] = []
    for process in processes:
        children.setdefault(process.parent_pid, []).append(process)
        if process.pid == root_pid:
            found.append(process)
    for process in found:  # grows while it is walked
        found.extend(children.get(process.pid, []))
    return found


def read_processes() -> list[ProcessStat]:
    """Return every process that exists now."""
    processes: list[ProcessStat] = []
    for directory in _PROC.iterdir():
        if directory.name.isdecimal():
            try:
                processes.append(ProcessStat.parse((directory / "stat").read_text()))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended while we looked
    return processes


def cpu_seconds(process: ProcessStat) -> float:
    """Return the CPU time of a process, all threads, with that of its ended children."""
    return own_cpu_seconds(process) + process.ended_children_ticks / _TICKS_PER_S


def own_cpu_seconds(process: ProcessStat) -> float:
    """Return the CPU time of a process, all threads, without that of children."""
    # Linux gives each process a CPU clock whose number is made from its pid (see
    # clock_getcpuclockid). It counts nanoseconds, where stat has steps of 10 ms, too coarse to
    # see 2% of a core over a dozen idle backends.
    try:
        return time.clock_gettime((~process.pid << 3) | 2)
    except OSError:
        return process.cpu_ticks / _TICKS_PER_S


def listener_of(port: int) -> int | None:
    """Return the topmost process that listens on a TCP port, if we may see it."""
    inodes = set[str]()
    for table in ("tcp", "tcp6"):
        path = _PROC / "net" / table
        inodes |= listening_inodes(path.read_text(), port) if path.exists() else set()
    processes = {process.pid: process for process in read_processes()}
    holders = {pid for pid in processes if _holds_socket(pid, inodes)}
    return topmost(holders, {pid: process.parent_pid for pid, process in processes.items()})


def listening_inodes(table: str, port: int) -> set[str]:
    """Return the socket inodes that listen on `port` in the text of `/proc/net/tcp`."""
    inodes = set[str]()
    for line in table.splitlines()[1:]:
        fields = line.split()
        is_listening = fields[3] == "0A"
        if is_listening and int(fields[1].rpartition(":")[2], 16) == port:
            inodes.add(fields[9])
    return inodes


def topmost(pids: set[int], parents: Mapping[int, int]) -> int | None:
    """Return the process of `pids` whose parent is not one of them; the lowest if several."""
    return min((pid for pid in pids if parents.get(pid) not in pids), default=None)


def _holds_socket(pid: int, inodes: set[str]) -> bool:
    wanted = {f"socket:[{inode}]" for inode in inodes}
    try:
        descriptors = list((_PROC / str(pid) / "fd").iterdir())
    except OSError:
        return False
    for descriptor in descriptors:
        try:
            if str(descriptor.readlink()) in wanted:
                return True
        except OSError:
            continue
    return False


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything the meter shows at one moment; CPU is None for processes it cannot see."""

    at_s: float
    broker_cpu_s: float | None
    postgres_cpu_s: float | None
    broker_rss_bytes: int | None
    largest_rss_bytes: int | None
    wal_bytes: int
    xid: int
    transactions: int


@dataclass(frozen=True, slots=True)
class Usage:
    """The difference of two readings."""

    seconds: float
    broker_cpu_s: float | None
    postgres_cpu_s: float | None
    broker_rss_bytes: int | None
    largest_rss_bytes: int | None
    wal_bytes: int
    commits: int
    statements: int

    @classmethod
    def between(cls, before: Reading, after: Reading) -> Self:
        return cls(
            seconds=after.at_s - before.at_s,
            broker_cpu_s=_difference(before.broker_cpu_s, after.broker_cpu_s),
            postgres_cpu_s=_difference(before.postgres_cpu_s, after.postgres_cpu_s),
            broker_rss_bytes=after.broker_rss_bytes,
            largest_rss_bytes=after.largest_rss_bytes,
            wal_bytes=after.wal_bytes - before.wal_bytes,
            commits=after.xid - before.xid,
            # Taking a reading is one transaction, and this one saw the first of the two.
            statements=max(after.transactions - before.transactions - 1, 0),
        )

    @property
    def cpu_s(self) -> float | None:
        """CPU of broker and PostgreSQL together."""
        if self.broker_cpu_s is None or self.postgres_cpu_s is None:
            return None
        return self.broker_cpu_s + self.postgres_cpu_s


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


class Meter:
    """Reads what the broker and its PostgreSQL have used so far."""

    def __init__(
        self,
        connection: asyncpg.Connection,
        *,
        broker_pids: Sequence[int],
        postmaster_pid: int | None,
    ) -> None:
        self._connection = connection
        self._broker_pids = broker_pids
        self._postmaster_pid = postmaster_pid

    @classmethod
    async def connect(cls, database_url: str, *, broker_pids: Sequence[int]) -> Self:
        """Open the meter's own connection and find the postmaster through it."""
        connection = await asyncpg.connect(database_url)
        meter = cls(
            connection, broker_pids=broker_pids, postmaster_pid=await _postmaster_of(connection)
        )
        await meter.read()  # prepares the statement: from now on a reading is one transaction
        return meter

    @property
    def connection(self) -> asyncpg.Connection:
        """The meter's session, for questions between windows."""
        return self._connection

    async def close(self) -> None:
        await self._connection.close()

    async def read(self) -> Reading:
        """Take a reading."""
        row = await self._connection.fetchrow(_SAMPLE)
        assert row is not None
        processes = read_processes()
        broker = [each for pid in self._broker_pids for each in tree_of(pid, processes)]
        postgres = [] if self._postmaster_pid is None else tree_of(self._postmaster_pid, processes)
        return Reading(
            at_s=time.monotonic(),
            broker_cpu_s=_total_cpu(broker),
            postgres_cpu_s=_total_cpu(postgres),
            broker_rss_bytes=sum(p.rss_pages for p in broker) * _PAGE_BYTES or None,
            largest_rss_bytes=max((p.rss_pages for p in broker), default=0) * _PAGE_BYTES or None,
            wal_bytes=row["wal_bytes"],
            xid=row["xid"],
            transactions=row["transactions"],
        )


def _total_cpu(tree: list[ProcessStat]) -> float | None:
    return sum(cpu_seconds(process) for process in tree) if tree else None


async def _postmaster_of(connection: asyncpg.Connection) -> int | None:
    """Return the parent of our backend, or None if PostgreSQL runs on another machine."""
    backend_pid = await connection.fetchval("select pg_catalog.pg_backend_pid()")
    backend = next((p for p in read_processes() if p.pid == backend_pid), None)
    return backend.parent_pid if backend is not None and backend.name == "postgres" else None
