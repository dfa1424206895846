"""One run: every chosen scenario, round after round, with the floor never older than a minute.

Rounds are interleaved (all scenarios, then all again) so that a slow minute of the machine hits
one repeat of many scenarios and not all repeats of one.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from benchmarks.bench import Bench, Outcome, Sizes
from benchmarks.errors import BenchmarkError
from benchmarks.floor import Floor
from benchmarks.goals import CPU, GOALS, evaluate
from benchmarks.machine import postgres_facts
from benchmarks.meter import Meter
from benchmarks.report import Round, Run, figures_of
from benchmarks.scenarios import Scenario
from benchmarks.stack import Stack

# Loading a hundred thousand partitions is the longest thing that a scenario does.
_SCENARIO_S_MAX = 600.0


@dataclass(frozen=True, slots=True)
class Order:
    """What the caller wants run."""

    scenarios: Sequence[Scenario]
    sizes: Sizes
    repeat: int
    floor_s: float


async def run_all(stack: Stack, order: Order, facts: dict[str, Any], console: Console) -> Run:
    """Run the order against a broker that is up."""
    meter = await Meter.connect(stack.database_url, broker_pids=stack.broker_pids)
    try:
        facts["postgres"] = await postgres_facts(meter.connection)
        floor = Floor(
            meter,
            stack.database_url,
            connections=order.sizes.connections,
            payload_bytes=order.sizes.payload_bytes,
            seconds=order.floor_s,
        )
        with _progress(console) as progress:
            rounds = await _run_rounds(stack, order, meter, floor, progress)
    finally:
        await meter.close()
    goals = evaluate([figures_of(outcomes) for outcomes in rounds], GOALS)
    return Run(facts, order.sizes, order.scenarios, rounds, floor.history, goals)


async def _run_rounds(
    stack: Stack, order: Order, meter: Meter, floor: Floor, progress: Progress
) -> list[Round]:
    total = order.repeat * len(order.scenarios)
    task = progress.add_task("", total=total, scenario="", phase="")

    def say(phase: str) -> None:
        progress.update(task, phase=phase)

    bench = Bench(stack.target, meter, order.sizes, run_id=secrets.token_hex(3), say=say)
    rounds: list[Round] = []
    for _ in range(order.repeat):
        outcomes: dict[str, Outcome] = {}
        rounds.append(outcomes)
        for scenario in order.scenarios:
            progress.update(task, scenario=scenario.name)
            say("floor")
            lowest = await floor.current()
            outcome = outcomes[scenario.name] = await run_one(scenario, bench)
            if outcome.figures:
                outcome.figures |= {
                    "floor_copy_us_per_message": lowest.copy_us_per_message,
                    "floor_commits_per_s": lowest.commits_per_s,
                }
            progress.advance(task)
            progress.console.print(brief(scenario, outcome))
    return rounds


async def run_one(scenario: Scenario, bench: Bench) -> Outcome:
    """Run a scenario; one that cannot be measured is an outcome with an error, not the end."""
    began_s = time.monotonic()
    try:
        async with asyncio.timeout(_SCENARIO_S_MAX):
            outcome = await scenario.run(bench)
    except (BenchmarkError, TimeoutError, OSError, asyncpg.PostgresError) as error:
        return Outcome(errors={type(error).__name__: 1}, examples=[str(error)])
    outcome.figures["scenario_s"] = time.monotonic() - began_s
    return outcome


def brief(scenario: Scenario, outcome: Outcome) -> Text:
    """One line while the run goes on: the rate, and every figure that a goal is about."""
    if not outcome.figures:
        return Text(f"{scenario.title}: {'; '.join(outcome.examples)}", style="red")
    parts = [f"{outcome.figures['messages_per_s']:,.0f} msg/s"]
    cost = outcome.figures[CPU]
    if cost is not None:
        parts.append(f"{cost:.1f} us per message")
    for goal in GOALS:
        value = goal.value({scenario.name: outcome.figures})
        if goal.figure != CPU and value is not None:
            parts.append(f"{goal.figure} {value:.2f}")
    return Text(f"{scenario.title}: {', '.join(parts)}", style="red" if outcome.errors else "")


def _progress(console: Console) -> Progress:
    return Progress(
        MofNCompleteColumn(),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.fields[scenario]} [dim]{task.fields[phase]}[/dim]"),
        console=console,
        transient=True,
    )
