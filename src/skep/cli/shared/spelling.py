"""How values read for people: headings, relative times, durations, sizes, and the colour of states.

What a value is follows from its name on the wire (`lagSeconds`, `rss_bytes`, `state`) and from its
form (a time). Pure: the caller passes the time of day.
"""

import re
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from skep.model.wire import QUEUE_MODE

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\d.]*(Z|[+-]\d\d:\d\d)")
_SECONDS: Final = re.compile(r".*([sS]econds|_s|[a-z]S|TimeLag)")
_BYTES: Final = re.compile(r"(?i).*bytes")
_MOMENTS: Final = ((1, 60, "s"), (60, 3600, "min"), (3600, 172_800, "h"), (86_400, 1_209_600, "d"))
_STYLES: Final = {
    "green": "ok alive healthy running consuming completed done applied queued current",
    "yellow": "warning lagging paused waiting scheduled blocked processing buffered late retry yes"
    " crowded",
    "red": "broken stalled failed dead missing dead_letter no-consumers rejected full stuck",
    "dim": "empty cancelled idle stopped redriven no",
}
_STYLE_OF: Final = {word: style for style, words in _STYLES.items() for word in words.split()}
_STATES: Final = frozenset(
    {"state", "status", "condition", "outcome", "result", "lastJobState", "systemHealth"}
)


class Cell(NamedTuple):
    """The text of a value, and how to print it."""

    text: str
    style: str = ""
    is_number: bool = False
    """Numbers stand on the right."""


def heading(column: str) -> str:
    """Return the heading of a column: `path as heading`, or made of the last name of its path."""
    path, _, chosen = column.partition(" as ")
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", chosen or path.rpartition(".")[2]).lower()
    words = words.removeprefix("is ")
    for ending in (" at", " seconds", " s", " bytes"):
        words = words.removesuffix(ending)
    words = re.sub(r"\bid\b", "ID", words)
    return words[:1].upper() + words[1:]


def spell(name: str, value: Any, *, is_exact: bool, now: datetime) -> Cell:
    """Return the cell of a value with this name on the wire."""
    name = name.rpartition(".")[2]
    if value is None:
        return Cell("")
    if isinstance(value, bool):
        word = "yes" if value else "no"
        return Cell(word, _STYLE_OF[word] if name in ("isPaused", "is_paused") else "")
    if isinstance(value, int | float):
        return Cell(_spell_number(name, value, is_exact=is_exact), is_number=True)
    if not isinstance(value, str):
        return Cell(_to_json(value))
    if value == QUEUE_MODE and not is_exact:
        return Cell("default group")
    if name != "data" and not is_exact and _TIME.fullmatch(value):
        return Cell(spell_moment(datetime.fromisoformat(value), now))
    return Cell(value, style_of(value) if name in _STATES else "")


def style_of(state: str) -> str:
    """Return the colour of a state; of its first word if it says more."""
    return _STYLE_OF.get(state.partition(",")[0], "")


def spell_moment(moment: datetime, now: datetime) -> str:
    """Return a time relative to now; one of another month as a date."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    for unit_s, seconds_max, unit in _MOMENTS:
        if abs(seconds) < seconds_max:
            count = f"{abs(seconds) // unit_s:.0f} {unit}"
            return f"{count} ago" if seconds > 0 else f"in {count}"
    return f"{moment.astimezone(UTC):%Y-%m-%d}"


def spell_seconds(seconds: float | None) -> str:
    """Return a duration in a fitting unit."""
    if seconds is None:
        return "-"
    if 0 < seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:,.0f} d"


def spell_bytes(size: float) -> str:
    """Return a size in a fitting unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def last_line(text: str) -> str:
    """Return the line that says what happened: the last one of a stack trace, else the first."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    return lines[-1] if lines[0].startswith("Traceback") else lines[0]


def _spell_number(name: str, value: float, *, is_exact: bool) -> str:
    if not is_exact and _SECONDS.fullmatch(name):
        return spell_seconds(value)
    if not is_exact and _BYTES.fullmatch(name):
        return spell_bytes(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _to_json(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()
