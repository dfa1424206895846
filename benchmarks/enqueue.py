"""How soon a staged message is delivered. `python -m benchmarks.enqueue`.

A broker and a PostgreSQL of its own are started for the run. Some sessions stage one message per
transaction, at moments drawn at random; consumers wait in long polls. A message is as late as the
time from just before its commit until a consumer has it. For comparison the same is pushed by SQL
(`skep.push`), which is in the log at the commit: what staging adds is the difference. Several
rounds, because a machine that others use as well shows in the worst of them first.
"""

import asyncio
import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import asyncpg
import httpx
import typer
import uvloop
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.errors import BenchmarkError, ScenarioFailed
from benchmarks.meter import Meter, Usage
from benchmarks.stack import DEFAULT_SERVER_COMMAND, Stack, own_stack
from skep import enqueue
from skep.model.errors import SkepError

Way = Literal["stage", "push"]

GOAL_MS: Final = 50.0
SESSIONS: Final = 8
CONSUMERS: Final = 4
POLL_MS: Final = 10_000
PATIENCE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Round:
    """What one round came to."""

    way: Way
    p50_ms: float
    p99_ms: float
    worst_ms: float
    cpu_us: float
    """Of the broker and of PostgreSQL, per message, the sessions of the producers included."""


class Latencies:
    """Hears when messages were committed and when they came."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._seconds: list[float] = []
        self.is_done: Final = asyncio.Event()

    def delivered(self, committed_at: float) -> None:
        """A consumer has a message."""
        self._seconds.append(time.monotonic() - committed_at)
        self._left -= 1
        if self._left == 0:
            self.is_done.set()

    def at(self, share: float) -> float:
        """Return the milliseconds within which so many came."""
        ordered = sorted(self._seconds)
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1e3


async def _produce(
    connection: asyncpg.Connection, way: Way, queue: str, count: int, pause_s: float
) -> None:
    chance = random.Random()
    call = enqueue.stage if way == "stage" else enqueue.push
    for _ in range(count):
        await asyncio.sleep(chance.expovariate(1 / pause_s))
        transaction = connection.transaction()
        await transaction.start()
        partition = f"p{chance.randrange(16)}"
        await call(connection, queue, {"at": time.monotonic()}, partition=partition)
        await transaction.commit()


async def _consume(client: httpx.AsyncClient, queue: str, heard: Latencies) -> None:
    parameters = {
        "wait": "true",
        "timeout": POLL_MS,
        "batch": 100,
        "partitions": 16,
        "autoAck": "true",
    }
    while True:
        answer = await client.get(f"/api/v1/pop/queue/{queue}", params=parameters)
        if answer.status_code == httpx.codes.NO_CONTENT:
            continue
        if answer.status_code != httpx.codes.OK:
            raise ScenarioFailed(f"a poll was answered {answer.status_code}: {answer.text[:200]}")
        for message in answer.json()["messages"]:
            heard.delivered(message["data"]["at"])


async def _round(
    stack: Stack, meter: Meter, client: httpx.AsyncClient, way: Way, count: int, rate: float
) -> Round:
    queue, heard = f"bench-{way}-{random.getrandbits(32):x}", Latencies(count)
    sessions = [await asyncpg.connect(stack.database_url) for _ in range(SESSIONS)]
    consumers = [asyncio.ensure_future(_consume(client, queue, heard)) for _ in range(CONSUMERS)]
    before = await meter.read()
    try:
        async with asyncio.timeout(count / rate * 5 + PATIENCE_S):
            share, pause_s = count // SESSIONS, SESSIONS / rate
            await asyncio.gather(*(_produce(each, way, queue, share, pause_s) for each in sessions))
            done = asyncio.ensure_future(heard.is_done.wait())
            await asyncio.wait([done, *consumers], return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                raise ScenarioFailed("a consumer ended before all messages came")
    finally:
        for consumer in consumers:
            consumer.cancel()
        await asyncio.gather(*consumers, return_exceptions=True)
        for session in sessions:
            await session.close()
    usage = Usage.between(before, await meter.read())
    cpu_s = (usage.broker_cpu_s or 0.0) + (usage.postgres_cpu_s or 0.0)
    return Round(way, heard.at(0.5), heard.at(0.99), heard.at(1.0), cpu_s / count * 1e6)


async def _run(stack: Stack, rounds: int, count: int, rate: float) -> list[Round]:
    meter = await Meter.connect(stack.database_url, broker_pids=stack.broker_pids)
    url = f"http://{stack.target.host}:{stack.target.port}"
    results: list[Round] = []
    try:
        async with httpx.AsyncClient(base_url=url, timeout=POLL_MS / 1e3 + 10) as client:
            for number in range(rounds + 1):
                for way in get_args(Way):
                    result = await _round(stack, meter, client, way, count, rate)
                    if number > 0:  # the first warms up
                        results.append(result)
    finally:
        await meter.close()
    return results


def _print(results: list[Round], console: Console) -> None:
    table = Table("way", "p50 ms", "p99 ms", "worst ms", "CPU us", box=None)
    for each in results:
        figures = (each.p50_ms, each.p99_ms, each.worst_ms)
        table.add_row(each.way, *(f"{ms:.1f}" for ms in figures), f"{each.cpu_us:.0f}")
    console.print(table)
    staged = sorted(each.p99_ms for each in results if each.way == "stage")
    middle = staged[len(staged) // 2]
    console.print(
        f"stage to delivery, p99 of the middle round: {middle:.1f} ms, goal {GOAL_MS:.0f} ms: "
        f"{'met' if middle <= GOAL_MS else 'missed'} (best {staged[0]:.1f}, worst {staged[-1]:.1f})"
    )


def main(
    rounds: Annotated[int, typer.Option(min=1, help="How often; the middle one counts.")] = 5,
    count: Annotated[int, typer.Option(min=100, help="Messages in a round.")] = 800,
    rate: Annotated[float, typer.Option(min=1, help="Messages per second.")] = 100.0,
    output: Annotated[Path | None, typer.Option(help="JSON file.")] = None,
) -> None:
    """Measure how soon staged messages are delivered."""
    console = Console(highlight=False)
    try:
        with own_stack(DEFAULT_SERVER_COMMAND) as stack:
            results = uvloop.run(_run(stack, rounds, count // SESSIONS * SESSIONS, rate))
    except (BenchmarkError, SkepError) as error:
        console.print(Text(str(error), style="red"))
        raise typer.Exit(1) from error
    _print(results, console)
    if output is not None:
        rows: list[dict[str, Any]] = [
            {name: getattr(each, name) for name in Round.__slots__} for each in results
        ]
        output.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    typer.run(main)
