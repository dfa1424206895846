"""How soon a parked long poll gets what became deliverable. `python -m benchmarks.wakeups`.

Everything that makes a message deliverable happens to polls that have been parked for two seconds,
long enough that they look by themselves as seldom as the settings let them. It happens at their own
instance, at a peer that tells theirs by datagram, and where nobody tells their instance anything,
so that only their own look finds the message. All have default settings and one database.

A wait begins just before the cause is requested (so it includes the request itself), or at the
moment a message was due or a lease ended. A missed goal is a result; the exit code tells only
whether it could be measured.
"""

import asyncio
import random
import secrets
import socket
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.connection import Connection, connect
from benchmarks.errors import BenchmarkError, ScenarioFailed
from benchmarks.load import Target
from benchmarks.stack import further_broker, own_stack
from benchmarks.stats import percentile
from skep.model.errors import SkepError

HINTED_GOAL_MS: Final = 200.0
UNHINTED_GOAL_MS: Final = 1_000.0
"""The default of `poll_interval_ms_max`, the longest that a poll goes without a look."""
SETTLED_S: Final = 2.0
"""After so long a parked poll has reached its longest interval."""
SPREAD_S: Final = 1.5
"""The trials of a row begin at random within so long, so that causes do not meet."""
LEASE_S: Final = 4
DELAY_S: Final = 1.0
POLL_MS: Final = 30_000
POLLS_PER_DRAIN: Final = 20
PATIENCE_S: Final = 60.0
PIPE_WIDTH: Final = 120
_SERVER_COMMAND: Final = (
    "env SKEP_SPILL_DIR={spill} {more} {{python}} -m skep serve --workers 1 --port {{port}}"
    " --database-url {{database_url}}"
)


@dataclass(frozen=True, slots=True)
class Trial:
    """A queue with one poll, and a connection to where something happens to it."""

    acting: Connection
    queue: str


class Cause(ABC):
    """Something that makes one message of a queue deliverable. One object serves one round."""

    name: str
    polls_at_once: int | None = None
    """How many polls one round has; None: all trials."""

    async def prepare(self, trial: Trial) -> None:  # noqa: B027 -- most need nothing
        """Do what has to be done before the poll is parked."""

    @abstractmethod
    async def happen(self, trial: Trial) -> float:
        """Let it happen; return the moment from which the poll is kept waiting."""


class ByPush(Cause):
    name = "push"

    async def happen(self, trial: Trial) -> float:
        began_s = time.monotonic()
        await trial.acting.push(trial.queue, "x")
        return began_s


class ByNack(Cause):
    name = "nack (retry)"

    def __init__(self) -> None:
        self._held: dict[str, list[dict[str, object]]] = {}

    async def prepare(self, trial: Trial) -> None:
        await trial.acting.push(trial.queue, "x")
        self._held[trial.queue] = await trial.acting.pop(trial.queue, leaseSeconds=300)

    async def happen(self, trial: Trial) -> float:
        began_s = time.monotonic()
        await trial.acting.settle(self._held.pop(trial.queue), "retry")
        return began_s


class BySeek(Cause):
    name = "seek to the start"

    async def prepare(self, trial: Trial) -> None:
        await trial.acting.push(trial.queue, "x")
        await trial.acting.settle(await trial.acting.pop(trial.queue), "completed")

    async def happen(self, trial: Trial) -> float:
        path = f"/api/v1/consumer-groups/__QUEUE_MODE__/queues/{trial.queue}/seek"
        began_s = time.monotonic()
        await trial.acting.post(path, {"toStart": True})
        return began_s


class ByReplay(Cause):
    name = "replay of a dead letter"

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}

    async def prepare(self, trial: Trial) -> None:
        await trial.acting.push(trial.queue, "x")
        await trial.acting.settle(await trial.acting.pop(trial.queue), "dlq")
        listed = await trial.acting.get(f"/api/v1/dlq?queue={trial.queue}")
        self._letters[trial.queue] = listed["messages"][0]["dlqId"]

    async def happen(self, trial: Trial) -> float:
        began_s = time.monotonic()
        await trial.acting.post(f"/api/v1/dlq/{self._letters.pop(trial.queue)}/replay", {})
        return began_s


class ByDueTime(Cause):
    name = "deliverAt is due"

    async def happen(self, trial: Trial) -> float:
        due_s = time.monotonic() + DELAY_S
        due_at = datetime.now(UTC) + timedelta(seconds=DELAY_S)
        await trial.acting.push(trial.queue, "x", deliverAt=due_at.isoformat())
        return due_s


class ByEndOfLease(Cause):
    name = "end of a lease"

    def __init__(self) -> None:
        self._ends_s: dict[str, float] = {}

    async def prepare(self, trial: Trial) -> None:
        await trial.acting.push(trial.queue, "x")
        # The lease begins during the request: counted from before it, no wait looks too short.
        self._ends_s[trial.queue] = time.monotonic() + LEASE_S
        await trial.acting.pop(trial.queue, leaseSeconds=LEASE_S)

    async def happen(self, trial: Trial) -> float:
        return self._ends_s.pop(trial.queue)


class ByDrain(Cause):
    """The end of push maintenance, which concerns all queues: the polls of a round share it."""

    name = "drain of the spool"
    polls_at_once = POLLS_PER_DRAIN

    def __init__(self) -> None:
        self._all_are_parked = asyncio.Barrier(POLLS_PER_DRAIN)
        self._began_s = 0.0

    async def prepare(self, trial: Trial) -> None:
        await trial.acting.post("/api/v1/system/maintenance", {"enabled": True})
        status = await trial.acting.push(trial.queue, "x")
        if status != "buffered":
            raise ScenarioFailed(f"a push under maintenance was {status}")

    async def happen(self, trial: Trial) -> float:
        if await self._all_are_parked.wait() == 0:
            self._began_s = time.monotonic()
            await trial.acting.post("/api/v1/system/maintenance", {"enabled": False})
        await self._all_are_parked.wait()
        return self._began_s


# The drain comes last: for a moment after it, other instances may still believe in maintenance.
CAUSES: Final[Sequence[type[Cause]]] = (
    ByPush,
    ByNack,
    BySeek,
    ByReplay,
    ByDueTime,
    ByEndOfLease,
    ByDrain,
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where polls are parked and where the cause happens."""

    name: str
    parked_at: Target
    acting_at: Target
    goal_ms: float


@dataclass(frozen=True, slots=True)
class Waits:
    """How long polls waited for one cause at one place."""

    cause: str
    place: str
    goal_ms: float
    milliseconds: Sequence[float] = field(repr=False)
    """Ascending."""

    @classmethod
    def of(cls, cause: str, place: Place, seconds: Sequence[float]) -> "Waits":
        return cls(cause, place.name, place.goal_ms, sorted(1000 * each for each in seconds))

    def at(self, percent: float) -> float:
        """Return the wait that so many polls in a hundred did not exceed."""
        found = percentile(self.milliseconds, percent)
        if found is None:
            raise ScenarioFailed(f"no poll was answered after {self.cause}")
        return found

    @property
    def is_met(self) -> bool:
        return self.at(99) < self.goal_ms


def main(
    trials: Annotated[
        int, typer.Option(min=POLLS_PER_DRAIN, max=400, help="Polls for each cause and place.")
    ] = 100,
    only: Annotated[
        list[str] | None, typer.Option(help="Causes whose name begins like this; repeatable.")
    ] = None,
) -> None:
    """Measure how soon parked polls are answered."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_WIDTH)
    causes = [each for each in CAUSES if each.name.startswith(tuple(only or [""]))]
    try:
        with tempfile.TemporaryDirectory(prefix="skep-bench-spill-") as spill:
            measured = _measure_everywhere(causes, trials, Path(spill))
    except (BenchmarkError, SkepError) as error:
        console.print(Text(str(error), style="red"))
        raise typer.Exit(1) from error
    console.print(_table(measured))


def _measure_everywhere(causes: Sequence[type[Cause]], trials: int, spill: Path) -> list[Waits]:
    ports = _free_udp_ports(2)
    peers = ",".join(f"127.0.0.1:{port}" for port in ports)
    first, second = (
        _SERVER_COMMAND.format(
            spill=spill / str(port), more=f"SKEP_PEERS={peers} SKEP_PEER_PORT={port}"
        )
        for port in ports
    )
    with own_stack(first) as stack, further_broker(stack, second) as peer:
        here = stack.target
        hinted = (
            Place("same instance", here, here, HINTED_GOAL_MS),
            Place("peer", here, peer, HINTED_GOAL_MS),
        )
        measured = uvloop.run(_measure_all(causes, hinted, trials))
        # Not before: any instance may store what falls due, and this one would tell nobody.
        alone = _SERVER_COMMAND.format(spill=spill / "stranger", more="")
        with further_broker(stack, alone) as stranger:
            unhinted = Place("no hints", stranger, here, UNHINTED_GOAL_MS)
            return measured + uvloop.run(_measure_all(causes, [unhinted], trials))


def _free_udp_ports(count: int) -> list[int]:
    """Find free ports; all are bound at once so that they differ."""
    with ExitStack() as stack:
        bound = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for _ in range(count)
        ]
        for each in bound:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in bound]


async def _measure_all(
    causes: Sequence[type[Cause]], places: Sequence[Place], trials: int
) -> list[Waits]:
    return [await _measure(cause, place, trials) for cause in causes for place in places]


async def _measure(cause: type[Cause], place: Place, trials: int) -> Waits:
    """Try in rounds of as many polls as the cause takes at once."""
    seconds: list[float] = []
    while len(seconds) < trials:
        seconds += await _round(cause(), place, cause.polls_at_once or trials)
    waits = Waits.of(cause.name, place, seconds)
    print(f"{place.name}, {cause.name}: p99 {waits.at(99):.0f} ms", file=sys.stderr, flush=True)
    return waits


async def _round(cause: Cause, place: Place, polls: int) -> list[float]:
    run_id = secrets.token_hex(4)
    try:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            trials = [
                group.create_task(_trial(cause, place, f"bench-wake-{run_id}-{number}"))
                for number in range(polls)
            ]
    except* ScenarioFailed as failures:
        raise failures.exceptions[0] from None
    except* TimeoutError:
        raise ScenarioFailed(f"{place.name}: polls were not answered after {cause.name}") from None
    return [trial.result() for trial in trials]


async def _trial(cause: Cause, place: Place, queue: str) -> float:
    """Park a poll, let the cause happen, and return how many seconds the poll took from then."""
    await asyncio.sleep(random.uniform(0, SPREAD_S))
    async with AsyncExitStack() as stack:
        parked = await stack.enter_async_context(connect(place.parked_at))
        acting = await stack.enter_async_context(connect(place.acting_at))
        trial = Trial(acting, queue)
        await cause.prepare(trial)
        poll = asyncio.ensure_future(_wait_for_message(parked, queue))
        stack.callback(poll.cancel)
        await asyncio.sleep(SETTLED_S)
        if poll.done():
            raise ScenarioFailed(f"a poll was answered before the {cause.name}")
        began_s = await cause.happen(trial)
        return await poll - began_s


async def _wait_for_message(parked: Connection, queue: str) -> float:
    """Return the moment at which a long poll brought its message."""
    messages = await parked.pop(queue, wait="true", timeout=POLL_MS, autoAck="true")
    arrived_s = time.monotonic()
    if len(messages) != 1:
        raise ScenarioFailed(f"a poll brought {len(messages)} messages instead of one")
    return arrived_s


def _table(measured: Sequence[Waits]) -> Table:
    table = Table("cause", "where it happens", "polls", "p50 ms", "p99 ms", "max ms", "goal", "")
    for waits in measured:
        figures = (waits.at(percent) for percent in (50, 99, 100))
        table.add_row(
            waits.cause,
            waits.place,
            str(len(waits.milliseconds)),
            *(f"{figure:.1f}" for figure in figures),
            f"p99 < {waits.goal_ms:g}",
            "met" if waits.is_met else "missed",
        )
    return table


if __name__ == "__main__":
    typer.run(main)
