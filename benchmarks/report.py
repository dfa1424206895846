"""What the reader gets: a table of scenarios, a table of goals, and JSON with everything."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.bench import Outcome, Sizes
from benchmarks.floor import FloorFigures
from benchmarks.goals import Figures, GoalRow, Verdict
from benchmarks.scenarios import Scenario
from benchmarks.stats import Spread

Round = Mapping[str, Outcome]

_GENERATOR_CORE_PERCENT_MAX = 85.0
_BAR_SPAN = 2.0
VERDICT_STYLES = {
    Verdict.MET: "green",
    Verdict.MISSED: "red",
    Verdict.NOT_MEASURED: "dim",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """A finished run: what was measured, on what, with what."""

    facts: Mapping[str, Any]
    sizes: Sizes
    scenarios: Sequence[Scenario]
    rounds: Sequence[Round]
    floors: Sequence[FloorFigures]
    goals: Sequence[GoalRow]

    @property
    def has_errors(self) -> bool:
        return any(outcome.errors for outcomes in self.rounds for outcome in outcomes.values())

    def spread(self, scenario: str, figure: str) -> Spread | None:
        """Return a figure of a scenario over all rounds."""
        return Spread.of(
            [
                outcomes[scenario].figures.get(figure)
                for outcomes in self.rounds
                if scenario in outcomes
            ]
        )


def figures_of(outcomes: Round) -> dict[str, Figures]:
    """Return the figures of a round, without those of scenarios that had errors."""
    return {name: o.figures for name, o in outcomes.items() if not o.errors}


def print_run(run: Run, console: Console) -> None:
    """Print both tables, the floor, and every error."""
    console.print(_scenario_table(run))
    console.print(_floor_line(run.floors))
    console.print(_goal_table(run))
    for line in _warnings(run):
        console.print(line)


def _scenario_table(run: Run) -> Table:
    table = Table(title="Scenarios (CPU in microseconds per message)", title_justify="left")
    table.add_column("scenario", no_wrap=True)
    for heading in ("msg/s", "broker", "PG", "together", "p50 ms", "p99 ms", "WAL B", "commits"):
        table.add_column(heading, justify="right")
    table.add_column("RSS MiB", justify="right")
    table.add_column("generator", justify="right")
    for scenario in run.scenarios:
        table.add_row(*_scenario_cells(run, scenario.name))
    return table


def _scenario_cells(run: Run, name: str) -> list[str]:
    def median(figure: str, pattern: str) -> str:
        spread = run.spread(name, figure)
        return "-" if spread is None else format(spread.median, pattern)

    return [
        name,
        median("messages_per_s", ",.0f"),
        median("broker_us_per_message", ".1f"),
        median("postgres_us_per_message", ".1f"),
        with_range(run.spread(name, "cpu_us_per_message"), ".1f"),
        median("p50_ms", ".1f"),
        median("p99_ms", ".1f"),
        median("wal_bytes_per_message", ".0f"),
        median("commits_per_message", ".4f"),
        median("broker_rss_mib", ".0f"),
        f"{median('generator_core_percent', '.0f')}%",
    ]


def with_range(spread: Spread | None, pattern: str) -> str:
    """Write a figure as its median, with the range of the repeats if there were several."""
    if spread is None:
        return "-"
    text = format(spread.median, pattern)
    if spread.count == 1:
        return text
    return f"{text} ({format(spread.low, pattern)}-{format(spread.high, pattern)})"


def _floor_line(floors: Sequence[FloorFigures]) -> str:
    def summary(values: Sequence[float | None], pattern: str) -> str:
        return with_range(Spread.of(values), pattern)

    return (
        f"Floor, {len(floors)} times: COPY BINARY of the same bytes "
        f"{summary([f.copy_messages_per_s for f in floors], ',.0f')} msg/s, "
        f"{summary([f.copy_us_per_message for f in floors], '.2f')} us per message; single commits "
        f"{summary([f.commits_per_s for f in floors], ',.0f')}/s, "
        f"{summary([f.commit_us for f in floors], '.0f')} us each (CPU of PostgreSQL alone)"
    )


def _goal_table(run: Run) -> Table:
    table = Table(title="Goals", title_justify="left")
    table.add_column("row", no_wrap=True)
    table.add_column("what")
    table.add_column("Queen 0.15")
    table.add_column("goal", no_wrap=True)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("measured : goal, full is 2", width=16)
    names = {scenario.name for scenario in run.scenarios}
    for row in run.goals:
        if names.issuperset(row.goal.needs):
            table.add_row(*_goal_cells(row))
    return table


def _goal_cells(row: GoalRow) -> list[str | Text | Bar]:
    goal, style = row.goal, VERDICT_STYLES[row.verdict]
    return [
        goal.name,
        goal.title,
        goal.queen,
        goal.limit_text,
        f"{with_range(row.spread, '.2f')} {goal.unit}".strip(),
        Text(row.verdict, style=style),
        _bar(row, style),
    ]


def _bar(row: GoalRow, style: str) -> Bar | str:
    if row.spread is None:
        return ""
    share = min(row.spread.median / row.goal.limit, _BAR_SPAN)
    return Bar(size=_BAR_SPAN, begin=0, end=share, color=style)


def _warnings(run: Run) -> list[Text]:
    lines: list[Text] = []
    for scenario in run.scenarios:
        busy = run.spread(scenario.name, "generator_core_percent")
        if busy is not None and busy.high > _GENERATOR_CORE_PERCENT_MAX:
            text = f"{scenario.name}: the generator used {busy.high:.0f}% of a core and may be the"
            lines.append(Text(f"{text} bottleneck; add --generators", style="yellow"))
    for outcomes in run.rounds:
        for name, outcome in outcomes.items():
            if outcome.errors:
                lines.append(Text(f"{name}: errors {outcome.errors}", style="red"))
                lines += [Text(f"    {example}") for example in outcome.examples]
    return lines


def write_json(run: Run, path: Path) -> None:
    """Write everything that was measured."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(as_json(run), indent=1) + "\n")


def as_json(run: Run) -> dict[str, Any]:
    """Return the run as plain values."""
    return {
        **run.facts,
        "sizes": dataclasses.asdict(run.sizes),
        "floor": [dataclasses.asdict(figures) for figures in run.floors],
        "goals": [
            {
                "name": row.goal.name,
                "title": row.goal.title,
                "goal": row.goal.limit_text,
                "queen": row.goal.queen,
                "measured": dataclasses.asdict(row.spread) if row.spread else None,
                "verdict": row.verdict,
            }
            for row in run.goals
        ],
        "rounds": [
            {name: dataclasses.asdict(outcome) for name, outcome in outcomes.items()}
            for outcomes in run.rounds
        ],
    }
