"""Generator processes as the runner sees them: start, look, stop.

A load is one or more processes that share the connections and the rate of every role. Whatever
happens, leaving the context ends them.
"""

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from benchmarks.errors import GeneratorFailed
from benchmarks.plan import Counts, Plan, PushRole, Role, Snapshot
from benchmarks.stats import share_out

_ANSWER_S_MAX = 30.0
_CONNECT_S_MAX = 120.0
# Closing a window brings all its latency samples on one line.
_LINE_BYTES_MAX = 1 << 28

_decode_snapshot = msgspec.json.Decoder(Snapshot).decode


@dataclass(frozen=True, slots=True)
class Target:
    """Where the broker listens; connections go round all instances of a cluster."""

    host: str
    port: int
    further_ports: tuple[int, ...] = ()


class Load:
    """Running generator processes, seen as one."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._processes = processes

    async def snapshot(self) -> Snapshot:
        """Return the counters of all generators now."""
        return await self._ask(b"snapshot\n")

    async def open_window(self) -> Snapshot:
        """Begin to keep latency samples; return the counters at that moment."""
        return await self._ask(b"open\n")

    async def close_window(self) -> Snapshot:
        """Return the counters with the latency samples since the window was opened."""
        return await self._ask(b"close\n")

    async def stop(self) -> Snapshot:
        """Let what is in flight finish, end the processes and return the last counters."""
        last = await self._ask(b"stop\n")
        for process in self._processes:
            await asyncio.wait_for(process.wait(), _ANSWER_S_MAX)
        return last

    async def _ask(self, command: bytes) -> Snapshot:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(command)
        return merge([await _read_snapshot(process) for process in self._processes])


@asynccontextmanager
async def running(
    target: Target, roles: Sequence[Role], processes: int = 1
) -> AsyncGenerator[Load]:
    """Run the roles until the context is left; it is entered once all connections stand."""
    started: list[Process] = []
    try:
        is_local = target.host == "127.0.0.1" and processes > 1
        for index, share in enumerate(split_roles(roles, processes)):
            source = f"127.0.0.{2 + index}" if is_local else None
            plan = Plan(target.host, [target.port, *target.further_ports], share, source)
            started.append(await _start(plan))
        for process in started:
            await _read_snapshot(process, _CONNECT_S_MAX)
        yield Load(started)
    finally:
        for process in started:
            if process.returncode is None:
                process.kill()
            await process.wait()


def split_roles(roles: Sequence[Role], parts: int) -> list[list[Role]]:
    """Deal the connections, rates and limits of every role out to `parts` processes."""
    shares: list[list[Role]] = [[] for _ in range(parts)]
    for role in roles:
        for index, connections in enumerate(share_out(role.connections, parts)):
            if connections:
                shares[index].append(_share_of(role, connections, index, parts))
    return [share for share in shares if share]


def _share_of(role: Role, connections: int, index: int, parts: int) -> Role:
    if not isinstance(role, PushRole):
        return msgspec.structs.replace(role, connections=connections)
    limit = role.request_limit
    return msgspec.structs.replace(
        role,
        connections=connections,
        # Another seed is another prefix of the transaction ids: no process repeats one's ids.
        seed=role.seed + 1_000_003 * index,
        rate=None if role.rate is None else role.rate * connections / role.connections,
        request_limit=None if limit is None else share_out(limit, parts)[index],
    )


def merge(snapshots: Sequence[Snapshot]) -> Snapshot:
    """Add up what several generators report."""
    merged = Snapshot(
        at_s=max(snapshot.at_s for snapshot in snapshots),
        cpu_s=sum(snapshot.cpu_s for snapshot in snapshots),
        roles={},
        errors={},
        examples=[example for snapshot in snapshots for example in snapshot.examples],
        is_done=all(snapshot.is_done for snapshot in snapshots),
    )
    for snapshot in snapshots:
        for name, counts in snapshot.roles.items():
            merged.roles[name] = _add(merged.roles.get(name, Counts()), counts)
        for kind, count in snapshot.errors.items():
            merged.errors[kind] = merged.errors.get(kind, 0) + count
        for name, samples in snapshot.latencies_us.items():
            merged.latencies_us.setdefault(name, []).extend(samples)
    return merged


def _add(left: Counts, right: Counts) -> Counts:
    return Counts(
        requests=left.requests + right.requests,
        messages=left.messages + right.messages,
        empties=left.empties + right.empties,
    )


async def _start(plan: Plan) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.generator",
        msgspec.json.encode(plan).decode(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_LINE_BYTES_MAX,
    )


async def _read_snapshot(process: Process, within_s: float = _ANSWER_S_MAX) -> Snapshot:
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), within_s)
    except TimeoutError as error:
        raise GeneratorFailed("a load generator does not answer") from error
    if not line:
        said = (await process.stderr.read()).decode(errors="replace").strip()
        last_line = said.rpartition("\n")[2]
        raise GeneratorFailed(f"a load generator ended with {await process.wait()}: {last_line}")
    return _decode_snapshot(line)
