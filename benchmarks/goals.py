"""The goals, row by row, and the verdict on each. Pure: it sees figures, not machines.

A goal names one figure of one scenario, or a ratio over several, and the limit it is held against.
The goals are stated for the standard load: 64 connections, about 100 bytes of payload, fsync and
synchronous_commit on, duplicate detection on, broker and PostgreSQL on one machine of two cores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from benchmarks.stats import Spread, growth

STANDARD_CONNECTIONS = 64
STANDARD_PAYLOAD_BYTES = 100

# A scenario's figures by name; None was not measurable here.
Figures = Mapping[str, float | None]


class Verdict(StrEnum):
    """How a figure stands to its goal."""

    MET = "met"
    MISSED = "missed"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Goal:
    """One row: `figure` of the scenario in `needs`; of several, its growth from the first on."""

    name: str
    title: str
    needs: tuple[str, ...]
    figure: str
    limit: float
    unit: str
    queen: str = "-"
    is_minimum: bool = False

    @property
    def limit_text(self) -> str:
        return f"{'>=' if self.is_minimum else '<='} {self.limit:g} {self.unit}".strip()

    def value(self, round_of_figures: Mapping[str, Figures]) -> float | None:
        """Return the figure to judge from one round, or None if a scenario did not run."""
        values = [round_of_figures.get(scenario, {}).get(self.figure) for scenario in self.needs]
        return values[0] if len(values) == 1 else growth(values)

    def judge(self, value: float | None) -> Verdict:
        if value is None:
            return Verdict.NOT_MEASURED
        is_met = value >= self.limit if self.is_minimum else value <= self.limit
        return Verdict.MET if is_met else Verdict.MISSED


@dataclass(frozen=True, slots=True)
class GoalRow:
    """A goal with what was measured over all rounds."""

    goal: Goal
    spread: Spread | None
    verdict: Verdict


def evaluate(rounds: Sequence[Mapping[str, Figures]], goals: Sequence[Goal]) -> list[GoalRow]:
    """Judge the median over the rounds; ratios are taken within a round, where noise is shared."""
    rows: list[GoalRow] = []
    for goal in goals:
        spread = Spread.of([goal.value(round_of_figures) for round_of_figures in rounds])
        rows.append(GoalRow(goal, spread, goal.judge(spread.median if spread else None)))
    return rows


def select(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the scenarios that match a pattern by their own name or by a goal that needs them."""
    wanted = {
        scenario for goal in GOALS if _matches(goal.name, patterns) for scenario in goal.needs
    }
    return [name for name in names if name in wanted or _matches(name, patterns)]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


CPU = "cpu_us_per_message"

GOALS = (
    Goal(
        name="push-1",
        title="push, 1 message per request",
        needs=("push-1x100",),
        figure=CPU,
        limit=85,
        unit="us",
        queen="425 us, 2,600 msg/s",
    ),
    Goal(
        name="push-10",
        title="push, 10 per request",
        needs=("push-10x100",),
        figure=CPU,
        limit=18,
        unit="us",
        queen="193 us, 8,600 msg/s",
    ),
    Goal(
        name="push-100",
        title="push, 100 per request",
        needs=("push-100x100",),
        figure=CPU,
        limit=8,
        unit="us",
        queen="100 us, 18,800 msg/s",
    ),
    Goal(
        name="push-100-wide",
        title="push, 100 per request, 1,000 partitions",
        needs=("push-100x1000",),
        figure=CPU,
        limit=14,
        unit="us",
        queen="142 us, 12,800 msg/s",
    ),
    Goal(
        name="pop-deep",
        title="pop, batch 100, autoAck, deep backlog",
        needs=("pop-autoack-1",),
        figure=CPU,
        limit=10,
        unit="us",
        queen="65 us, 23,000 msg/s",
    ),
    Goal(
        name="pop-many-partitions",
        title="pop, 10 messages in each of 10,000 partitions",
        needs=("pop-shallow-10000",),
        figure=CPU,
        limit=30,
        unit="us",
        queen="819 us in PostgreSQL alone",
    ),
    Goal(
        name="push-and-consume",
        title="push 10 per request while consumers pop and ack",
        needs=("push-and-consume",),
        figure=CPU,
        limit=60,
        unit="us",
        queen="2,300 us, 690 msg/s",
    ),
    Goal(
        name="delivery-keeps-up",
        title="... delivered for each message pushed",
        needs=("push-and-consume",),
        figure="delivered_per_pushed",
        limit=0.95,
        unit="",
        is_minimum=True,
    ),
    Goal(
        name="end-to-end",
        title="end to end at 200 msg/s, wildcard consumers, p99",
        needs=("end-to-end",),
        figure="p99_ms",
        limit=15,
        unit="ms",
        queen="p99 3.6-14.8 s",
    ),
    Goal(
        name="end-to-end-8",
        title="end to end at 200 msg/s, 8 wildcard consumers, p99",
        needs=("end-to-end-8",),
        figure="p99_ms",
        limit=10,
        unit="ms",
        queen="p99 465 ms",
    ),
    Goal(
        name="flat-push",
        title="push CPU, 10,000 against 100 partitions, same segments",
        needs=("push-segments-100", "push-segments-10000"),
        figure=CPU,
        limit=1.3,
        unit="x",
    ),
    Goal(
        name="flat-pop",
        title="pop CPU, flat from 100 to 100,000 partitions",
        needs=("pop-shallow-100", "pop-shallow-10000", "pop-shallow-100000"),
        figure=CPU,
        limit=1.5,
        unit="x",
    ),
    Goal(
        name="idle-sql",
        title="idle, 1,000 parked polls, 10,000 partitions: SQL calls",
        needs=("idle",),
        figure="sql_calls_per_s",
        limit=5,
        unit="/s",
    ),
    Goal(
        name="idle-cpu",
        title="idle, 1,000 parked polls, 10,000 partitions: CPU",
        needs=("idle",),
        figure="cpu_percent",
        limit=2,
        unit="%",
    ),
)

# What is not named below may not get worse; this much is noise.
_NO_WORSE = 1.05
_GAINS = {
    "push-1x100": 0.55,
    "push-10x100": 0.6,
    "push-100x100": 0.65,
    "push-1x1000": 0.5,
    "push-10x1000": _NO_WORSE,
    "push-100x1000": _NO_WORSE,
    "pop-autoack-1": 0.6,
    "pop-autoack-10x10000": 0.6,
    "push-and-consume": 0.65,
    "push-and-consume-1000": 0.65,
    "end-to-end-8": 0.25,
}
COMPARED = tuple(_GAINS)
"""The scenarios that a comparison runs if none is chosen."""


def comparison_goals(scenarios: Sequence[str], against_one: float | None) -> list[Goal]:
    """Return what the cost of each scenario may be, as a ratio to that of the other side.

    `against_one` is the limit for every scenario where one side has more processes than the other.
    """
    return [
        Goal(
            name=scenario,
            title="CPU per message, new : old",
            needs=(scenario,),
            figure=CPU,
            limit=_GAINS.get(scenario, _NO_WORSE) if against_one is None else against_one,
            unit="x",
        )
        for scenario in scenarios
    ]
