"""What a check found, and how it is shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from rich.table import Table

State: TypeAlias = Literal["ok", "warning", "broken"]

_STYLES: Final[dict[State, str]] = {"ok": "green", "warning": "yellow", "broken": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found."""

    topic: str
    state: State
    found: str
    advice: str | None = None
    """What to do; every finding that is not ok has it."""


def ok(topic: str, found: str) -> Finding:
    """All is well."""
    return Finding(topic, "ok", found)


def warning(topic: str, found: str, advice: str) -> Finding:
    """It works, and somebody should know this."""
    return Finding(topic, "warning", found, advice)


def broken(topic: str, found: str, advice: str) -> Finding:
    """It does not work."""
    return Finding(topic, "broken", found, advice)


def findings_table(findings: Sequence[Finding]) -> "Table":
    """Return findings for people, the advice below what was found."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for finding in findings:
        said = Text(finding.found)
        if finding.advice is not None:
            said.append(f"\n→ {finding.advice}", style="italic")
        table.add_row(Text(finding.state, style=_STYLES[finding.state]), finding.topic, said)
    return table


def finding_rows(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Return findings for programs."""
    return [
        {"topic": each.topic, "state": each.state, "found": each.found, "advice": each.advice}
        for each in findings
    ]
