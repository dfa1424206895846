"""Two checkouts in turns: what a message costs on the new one, as a ratio to the old one.

A turn is one scenario on one side, on a PostgreSQL and a broker that are started for it and stopped
after it. So the two never run beside each other, and neither carries what earlier turns left
behind. The generator and PostgreSQL's programs are the same for both; a ratio is taken between
neighbouring turns, which share the machine's mood, and the side that begins changes every round.
"""

import dataclasses
import json
import secrets
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvloop
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.bench import Bench, Outcome
from benchmarks.errors import BenchmarkError
from benchmarks.goals import CPU, Figures, GoalRow, comparison_goals, evaluate
from benchmarks.meter import Meter
from benchmarks.report import VERDICT_STYLES, Round, figures_of, with_range
from benchmarks.run import Order, brief, run_one
from benchmarks.scenarios import Scenario
from benchmarks.stack import DEFAULT_SERVER_COMMAND, Layout, Stack, own_stack
from benchmarks.stats import Spread, per

_ROOT: Final = Path(__file__).resolve().parent.parent
_BROKER: Final = "broker_us_per_message"
_POSTGRES: Final = "postgres_us_per_message"
_COMPARED_FIGURES: Final = (CPU, _BROKER, _POSTGRES, "p99_ms", "messages_per_s")
# What more processes may cost, as a ratio to one: they share the cores, so CPU is what counts.
_LIMITS_OF_LAYOUTS: Final = {(2, 1): 1.2, (4, 1): 1.3, (1, 2): 1.4}


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: a checkout's packages and how many processes run them."""

    name: str
    source: Path
    layout: Layout


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that both sides showed, round by round."""

    scenarios: Sequence[Scenario]
    old: Sequence[Round]
    new: Sequence[Round]
    goals: Sequence[GoalRow]

    @property
    def has_errors(self) -> bool:
        rounds = [*self.old, *self.new]
        return any(outcome.errors for outcomes in rounds for outcome in outcomes.values())

    def ratio(self, scenario: str, figure: str) -> Spread | None:
        """Return new : old of a figure, over the rounds."""
        return Spread.of(
            [ratios.get(scenario, {}).get(figure) for ratios in map(ratios_of, self.old, self.new)]
        )


def packages_here() -> Path:
    """Return the packages of the checkout that this benchmark belongs to."""
    return _ROOT / "src"


@contextmanager
def packages_of(revision: str) -> Generator[Path]:
    """Return the packages of a revision, laid out in a temporary folder, or of a checkout."""
    if Path(revision).is_dir():
        yield Path(revision).resolve() / "src"
        return
    with tempfile.TemporaryDirectory(prefix="skep-against-") as name:
        archive = subprocess.run(
            ["git", "-C", str(_ROOT), "archive", revision, "src"], capture_output=True, check=False
        )
        if archive.returncode:
            raise BenchmarkError(f"{revision}: {archive.stderr.decode().strip()}")
        # Through a file: a stream may not be read back, which symbolic links may want.
        path = Path(name) / "src.tar"
        path.write_bytes(archive.stdout)
        with tarfile.open(path) as files:
            files.extractall(name, filter="data")
        source = Path(name) / "src"
        # Or the first start would compile, and one side would be larger for it.
        compileall = [sys.executable, "-m", "compileall", "-q", str(source)]
        subprocess.run(compileall, check=True)
        yield source


def compare(
    old: Side,
    new: Side,
    order: Order,
    console: Console,
    *,
    postgres_bin: Path | None = None,
) -> Comparison:
    """Run every scenario of the order on both sides in turns, round after round."""
    rounds: dict[Side, list[Round]] = {old: [], new: []}
    for number in range(order.repeat):
        found: dict[Side, dict[str, Outcome]] = {old: {}, new: {}}
        for scenario in order.scenarios:
            for side in (old, new) if number % 2 == 0 else (new, old):
                outcome = found[side][scenario.name] = _take_turn(
                    side, scenario, order, postgres_bin
                )
                console.print(Text(f"{side.name}: ") + brief(scenario, outcome))
        for side, outcomes in found.items():
            rounds[side].append(outcomes)
    names = [scenario.name for scenario in order.scenarios]
    goals = comparison_goals(names, limit_of_layouts(old.layout, new.layout))
    ratios = list(map(ratios_of, rounds[old], rounds[new]))
    return Comparison(order.scenarios, rounds[old], rounds[new], evaluate(ratios, goals))


def _take_turn(side: Side, scenario: Scenario, order: Order, postgres_bin: Path | None) -> Outcome:
    with own_stack(
        DEFAULT_SERVER_COMMAND, postgres_bin=postgres_bin, layout=side.layout, source=side.source
    ) as stack:
        return uvloop.run(_run_alone(stack, scenario, order))


async def _run_alone(stack: Stack, scenario: Scenario, order: Order) -> Outcome:
    meter = await Meter.connect(stack.database_url, broker_pids=stack.broker_pids)
    try:
        bench = Bench(
            stack.target, meter, order.sizes, run_id=secrets.token_hex(3), say=lambda _: None
        )
        return await run_one(scenario, bench)
    finally:
        await meter.close()


def ratios_of(old: Round, new: Round) -> dict[str, Figures]:
    """Return new : old of every compared figure, for the scenarios without errors on both sides."""
    before, after = figures_of(old), figures_of(new)
    return {
        name: {
            figure: per(after[name].get(figure), before[name].get(figure) or 0)
            for figure in _COMPARED_FIGURES
        }
        for name in before.keys() & after.keys()
    }


def limit_of_layouts(old: Layout, new: Layout) -> float | None:
    """Return what the processes of `new` may cost more than those of `old`; None if as many."""
    if old == new:
        return None
    return _LIMITS_OF_LAYOUTS.get((new.workers, new.instances), max(_LIMITS_OF_LAYOUTS.values()))


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print a table with a row per scenario, and every error."""
    table = Table(title="New : old (CPU in microseconds per message)", title_justify="left")
    table.add_column("scenario", no_wrap=True)
    for heading in ("old", "new", "ratio", "broker", "PG", "p99 ms", "msg/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("goal", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in comparison.goals:
        table.add_row(*_cells(comparison, row))
    console.print(table)
    for side, rounds in (("old", comparison.old), ("new", comparison.new)):
        for outcomes in rounds:
            for name, outcome in outcomes.items():
                if outcome.errors:
                    text = f"{side} {name}: {outcome.errors} {'; '.join(outcome.examples)}"
                    console.print(Text(text, style="red"))


def _cells(comparison: Comparison, row: GoalRow) -> list[str | Text]:
    name = row.goal.name

    def both(figure: str, pattern: str) -> tuple[str, str]:
        old, new = (
            Spread.of([each.get(name, {}).get(figure) for each in map(figures_of, rounds)])
            for rounds in (comparison.old, comparison.new)
        )
        return tuple("-" if s is None else format(s.median, pattern) for s in (old, new))

    def ratio(figure: str) -> str:
        spread = comparison.ratio(name, figure)
        return "-" if spread is None else f"{spread.median:.2f}"

    return [
        name,
        *both(CPU, ".1f"),
        with_range(row.spread, ".2f"),
        ratio(_BROKER),
        ratio(_POSTGRES),
        " / ".join(both("p99_ms", ".1f")),
        " / ".join(both("messages_per_s", ",.0f")),
        row.goal.limit_text,
        Text(row.verdict, style=VERDICT_STYLES[row.verdict]),
    ]


def write_comparison(comparison: Comparison, facts: Mapping[str, Any], path: Path) -> None:
    """Write everything that was measured."""
    figures = {
        "ratios": {
            row.goal.name: {
                figure: dataclasses.asdict(spread) if spread else None
                for figure in _COMPARED_FIGURES
                for spread in (comparison.ratio(row.goal.name, figure),)
            }
            | {"goal": row.goal.limit_text, "verdict": row.verdict}
            for row in comparison.goals
        },
        **{
            side: [
                {name: dataclasses.asdict(outcome) for name, outcome in outcomes.items()}
                for outcomes in rounds
            ]
            for side, rounds in (("old", comparison.old), ("new", comparison.new))
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**facts, **figures}, indent=1) + "\n")
