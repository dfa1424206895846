"""What a partition whose handler always fails costs the others. `python -m benchmarks.poison`.

Two kinds of rounds in turns, each with a queue of its own and the same steady load on twenty
partitions: in one every message is completed, in the other every message of the first partition is
failed, without a pause between tries, until it is a dead letter. What counts is the time from the
moment a message was due to be pushed until a consumer had it, in the nineteen other partitions. The
goal is that their p99 stays what it was, which on a shared machine is said to be half as much again
at most. A missed goal is a result; the exit code tells only whether it could be measured.
"""

import asyncio
import secrets
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Annotated, Final

import typer
import uvloop
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.connection import Connection, Message, connect
from benchmarks.errors import BenchmarkError, ScenarioFailed
from benchmarks.load import Target
from benchmarks.stack import DEFAULT_SERVER_COMMAND, own_stack
from benchmarks.stats import percentile
from skep.model.errors import SkepError

GOAL: Final = 1.5
"""How many times the p99 without a failing partition the p99 of the others may be."""
PARTITIONS: Final = 20
POISON: Final = "p0"
RETRY_LIMIT: Final = 3
CONSUMERS: Final = 16
PRODUCERS: Final = 16
BATCH: Final = 10
POLL_MS: Final = 10_000
WARMUP_S: Final = 2.0
PATIENCE_S: Final = 30.0
PIPE_WIDTH: Final = 120


@dataclass(frozen=True, slots=True)
class Round:
    """What one round came to."""

    is_poisoned: bool
    milliseconds: Sequence[float]
    """Ascending; of the partitions that do not fail, after the warm-up."""
    failures: int
    dead_letters: int

    def at(self, percent: float) -> float:
        """Return the latency that so many messages in a hundred did not exceed."""
        found = percentile(self.milliseconds, percent)
        if found is None:
            raise ScenarioFailed("no message came after the warm-up")
        return found


def ratio_of_p99(rounds: Sequence[Round]) -> float:
    """Return how many times longer the median p99 of the poisoned rounds is."""
    poisoned, healthy = (
        statistics.median(each.at(99) for each in rounds if each.is_poisoned is kind)
        for kind in (True, False)
    )
    return poisoned / healthy


class Ledger:
    """Hears of every delivery of a round, and knows when all are accounted for."""

    def __init__(self, *, expected: int, counts_from_s: float) -> None:
        self._left = expected
        self._counts_from_s = counts_from_s
        self.milliseconds: list[float] = []
        self.failures = 0
        self.is_done: Final = asyncio.Event()

    def completed(self, message: Message, came_s: float) -> None:
        """A message that came then was completed."""
        due_s = message["data"]["due"]
        if message["partition"] != POISON and due_s >= self._counts_from_s:
            self.milliseconds.append((came_s - due_s) * 1000)
        self._settled(1)

    def failed(self, times: int, dead_letters: int) -> None:
        """Messages were failed once more, and so many of them are dead letters now."""
        self.failures += times
        self._settled(dead_letters)

    def _settled(self, count: int) -> None:
        self._left -= count
        if self._left == 0:
            self.is_done.set()


async def _run(target: Target, rounds: int, seconds: float, rate: float) -> list[Round]:
    await _round(target, is_poisoned=True, seconds=0.0, rate=rate)  # it warms up
    return [
        await _round(target, is_poisoned=is_poisoned, seconds=seconds, rate=rate)
        for _ in range(rounds)
        for is_poisoned in (False, True)
    ]


async def _round(target: Target, *, is_poisoned: bool, seconds: float, rate: float) -> Round:
    queue = f"bench-poison-{secrets.token_hex(4)}"
    count = int((WARMUP_S + seconds) * rate)
    async with AsyncExitStack() as stack:
        connections = [
            await stack.enter_async_context(connect(target)) for _ in range(CONSUMERS + PRODUCERS)
        ]
        options = {"retryLimit": RETRY_LIMIT, "retryDelay": 0}
        await connections[0].post("/api/v1/configure", {"queue": queue, "options": options})
        begins_s = time.monotonic()
        ledger = Ledger(expected=count, counts_from_s=begins_s + WARMUP_S)
        async with asyncio.timeout(WARMUP_S + seconds + PATIENCE_S), asyncio.TaskGroup() as group:
            consumers = [
                group.create_task(_consume(each, queue, ledger, is_poisoned=is_poisoned))
                for each in connections[PRODUCERS:]
            ]
            producers = [
                _produce(each, queue, range(number, count, PRODUCERS), begins_s, rate)
                for number, each in enumerate(connections[:PRODUCERS])
            ]
            await asyncio.gather(*producers)
            await ledger.is_done.wait()
            for consumer in consumers:
                consumer.cancel()
        listed = await connections[0].get(f"/api/v1/dlq?queue={queue}&limit=1000")
    dead_letters = len(listed["messages"])
    expected = len(range(0, count, PARTITIONS)) if is_poisoned else 0
    if dead_letters != expected:
        raise ScenarioFailed(f"{dead_letters} dead letters instead of {expected}")
    return Round(is_poisoned, sorted(ledger.milliseconds), ledger.failures, dead_letters)


async def _produce(
    connection: Connection, queue: str, numbers: range, begins_s: float, rate: float
) -> None:
    """Push each message when it is due, or as soon as the answer before it came."""
    for number in numbers:
        due_s = begins_s + number / rate
        await asyncio.sleep(max(due_s - time.monotonic(), 0))
        partition = f"p{number % PARTITIONS}"
        await connection.push(queue, {"due": due_s}, partition=partition)


async def _consume(
    connection: Connection, queue: str, ledger: Ledger, *, is_poisoned: bool
) -> None:
    while True:
        messages = await connection.pop(queue, wait="true", timeout=POLL_MS, batch=BATCH)
        came_s = time.monotonic()
        if not messages:
            continue
        # A lease is of one partition.
        if is_poisoned and messages[0]["partition"] == POISON:
            dead_letters = await connection.settle(messages, "failed")
            ledger.failed(len(messages), dead_letters)
            continue
        await connection.settle(messages, "completed")
        for message in messages:
            ledger.completed(message, came_s)


def _print(rounds: Sequence[Round], console: Console) -> None:
    table = Table(
        "round", "failing", "messages", "p50 ms", "p99 ms", "max ms", "failures", "dead letters"
    )
    for number, each in enumerate(rounds, start=1):
        table.add_row(
            str(number),
            POISON if each.is_poisoned else "none",
            str(len(each.milliseconds)),
            *(f"{each.at(percent):.1f}" for percent in (50, 99, 100)),
            str(each.failures),
            str(each.dead_letters),
        )
    console.print(table)
    ratio = ratio_of_p99(rounds)
    verdict = "met" if ratio <= GOAL else "missed"
    console.print(
        f"The p99 of other partitions is {ratio:.2f} times that without a failing one; "
        f"goal {GOAL:g}: {verdict}."
    )


def main(
    rounds: Annotated[int, typer.Option(min=1, max=20, help="Of each kind, in turns.")] = 3,
    seconds: Annotated[float, typer.Option(min=1, max=600, help="Length of a round.")] = 10.0,
    rate: Annotated[float, typer.Option(min=20, max=2_000, help="Messages per second.")] = 200.0,
) -> None:
    """Compare the latency beside a partition that always fails with that beside none."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_WIDTH)
    try:
        with own_stack(DEFAULT_SERVER_COMMAND) as stack:
            results = uvloop.run(_run(stack.target, rounds, seconds, rate))
    except (BenchmarkError, SkepError) as error:
        console.print(Text(str(error), style="red"))
        raise typer.Exit(1) from error
    _print(results, console)


if __name__ == "__main__":
    typer.run(main)
