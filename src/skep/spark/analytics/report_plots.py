"""Plots as SVG, made of nothing but text: bars over time, lines over time, and rankings. Pure.

They stand inside a page, which has the colours: classes `c0` to `c5` are series, in their order.
Text from outside passes `escaped`. Every mark shows its value on hover.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from html import escape
from typing import Final, NamedTuple

SERIES_MAX: Final = 6
"""Colours that people tell apart."""
WIDTH: Final = 880
HEIGHT: Final = 260
LEFT: Final = 64
RIGHT: Final = 12
TOP: Final = 12
BOTTOM: Final = 30
BAR_HEIGHT: Final = 26
LABEL_WIDTH: Final = 300
LABEL_CHARS_MAX: Final = 42
TICKS: Final = 4
LEGEND_CHARS_MAX: Final = 60
NOTHING: Final = "None."
"""What stands where there is nothing to rank."""

Spell = Callable[[float], str]


class Series(NamedTuple):
    """Values over time; None where nothing is known."""

    name: str
    values: Sequence[float | None]


class Ranked(NamedTuple):
    """One bar of a ranking."""

    label: str
    value: float
    note: str
    """What is said when it is pointed at, beside label and value."""


def escaped(text: str) -> str:
    """Return a text as it may stand anywhere in a page; what cannot be shown is replaced."""
    shown = "".join(each if each.isprintable() or each == " " else "\ufffd" for each in text)
    return escape(shown, quote=True)


def spell_count(value: float) -> str:
    """Spell a number in few characters: 1.2 M."""
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def spell_bytes(value: float) -> str:
    """Spell a size: 1.2 MB."""
    unit = "B" if abs(value) >= 1e3 else " B"
    return f"{spell_count(value)}{unit}"


def spell_milliseconds(value: float) -> str:
    """Spell a length of time: 15 ms, 2.5 s, 3 h."""
    for size, unit in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} ms"


def spell_seconds(value: float) -> str:
    """Spell a length of time that is given in seconds."""
    return spell_milliseconds(value * 1000)


def spell_ratio(value: float) -> str:
    """Spell how many times as much."""
    return f"{value:.3g} x"


def stacked_bars(
    title: str, moments: Sequence[datetime], series: Sequence[Series], spell: Spell = spell_count
) -> str:
    """Draw bars over time, with the series on top of each other."""
    totals = [sum(each.values[n] or 0 for each in series) for n in range(len(moments))]
    scale = _linear(max(totals, default=0))
    width = (WIDTH - LEFT - RIGHT) / max(len(moments), 1)
    marks: list[str] = []
    for number, moment in enumerate(moments):
        below = 0.0
        for place, each in enumerate(series):
            value = each.values[number] or 0
            if value:
                y = scale.y(below + value)
                marks.append(
                    f'<rect class="c{place}" x="{LEFT + number * width:.1f}" y="{y:.1f}" '
                    f'width="{max(width - 1, 0.8):.1f}" height="{scale.y(below) - y:.1f}">'
                    f"{_hint(each.name, moment, spell(value))}</rect>"
                )
            below += value
    return _figure(title, moments, series, scale, spell, marks)


def lines(
    title: str,
    moments: Sequence[datetime],
    series: Sequence[Series],
    spell: Spell = spell_count,
    *,
    is_logarithmic: bool = False,
) -> str:
    """Draw lines over time; where nothing is known there is a gap."""
    known = [value for each in series for value in each.values if value is not None]
    scale = _logarithmic(known) if is_logarithmic else _linear(max(known, default=0))
    step = (WIDTH - LEFT - RIGHT) / max(len(moments), 1)
    marks: list[str] = []
    for place, each in enumerate(series):
        runs: list[list[str]] = [[]]
        circles: list[str] = []
        for number, (moment, value) in enumerate(zip(moments, each.values, strict=True)):
            if value is None:
                runs.append([])
                continue
            x, y = LEFT + (number + 0.5) * step, scale.y(value)
            runs[-1].append(f"{x:.1f} {y:.1f}")
            circles.append(
                f'<circle class="c{place}" cx="{x:.1f}" cy="{y:.1f}" r="2.5">'
                f"{_hint(each.name, moment, spell(value))}</circle>"
            )
        marks += [f'<path class="line c{place}" d="M{"L".join(run)}"/>' for run in runs if run]
        marks += circles
    return _figure(title, moments, series, scale, spell, marks)


def ranking(title: str, bars: Sequence[Ranked], spell: Spell = spell_count) -> str:
    """Draw bars from left to right, one below the other, with their labels beside them."""
    if not bars:
        return f"<p>{NOTHING}</p>"
    largest = max(each.value for each in bars) or 1
    room = WIDTH - LABEL_WIDTH - 90
    marks: list[str] = []
    for number, each in enumerate(bars):
        y, width = number * BAR_HEIGHT, each.value / largest * room
        marks.append(
            f"<g><title>{escaped(f'{each.label}: {spell(each.value)}{each.note}')}</title>"
            f'<text x="{LABEL_WIDTH - 8}" y="{y + 17}" text-anchor="end">'
            f"{escaped(_shortened(each.label, LABEL_CHARS_MAX))}</text>"
            f'<rect class="c0" x="{LABEL_WIDTH}" y="{y + 4}" width="{max(width, 1):.1f}" '
            f'height="{BAR_HEIGHT - 8}" rx="2"/>'
            f'<text x="{LABEL_WIDTH + width + 6:.1f}" y="{y + 17}">'
            f"{escaped(spell(each.value))}</text></g>"
        )
    height = len(bars) * BAR_HEIGHT
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escaped(title)}">'
        f"{''.join(marks)}</svg>"
    )


def _shortened(text: str, chars: int) -> str:
    """Return a text that fits, with its end left out if need be."""
    return text if len(text) <= chars else text[: chars - 1] + "\u2026"


class _Scale(NamedTuple):
    """How values become heights: by their places between the first and the last tick."""

    ticks: Sequence[float]
    """The values that have a line of their own."""
    place: Callable[[float], float] = float

    def y(self, value: float) -> float:
        low, high = self.place(self.ticks[0]), self.place(self.ticks[-1])
        share = (self.place(value) - low) / (high - low)
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)


def _linear(largest: float) -> _Scale:
    step = nice_step(largest / TICKS)
    return _Scale([step * number for number in range(max(math.ceil(largest / step), 1) + 1)])


def _logarithmic(values: Iterable[float]) -> _Scale:
    positive = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(positive)))
    high = max(math.ceil(math.log10(max(positive))), low + 1)

    def place(value: float) -> float:
        return math.log10(value) if value > 0 else low

    return _Scale([10.0**power for power in range(low, high + 1)], place)


def nice_step(step: float) -> float:
    """Return the next number of 1, 2 or 5 times a power of ten."""
    if step <= 0:
        return 1.0
    power = 10 ** math.floor(math.log10(step))
    return next(size * power for size in (1, 2, 5, 10) if size * power >= step * (1 - 1e-9))


def _figure(
    title: str,
    moments: Sequence[datetime],
    series: Sequence[Series],
    scale: _Scale,
    spell: Spell,
    marks: Sequence[str],
) -> str:
    grid = "".join(
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{scale.y(tick):.1f}" '
        f'y2="{scale.y(tick):.1f}"/><text x="{LEFT - 8}" y="{scale.y(tick) + 4:.1f}" '
        f'text-anchor="end">{escaped(spell(tick))}</text>'
        for tick in scale.ticks
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escaped(title)}">'
        f'<g class="grid">{grid}{_time_axis(moments)}</g>{"".join(marks)}</svg>'
        f"{_legend(series) if len(series) > 1 else ''}"
    )


def _time_axis(moments: Sequence[datetime]) -> str:
    if not moments:
        return ""
    step = (WIDTH - LEFT - RIGHT) / len(moments)
    every = math.ceil(len(moments) / 8)
    spelling = _axis_spelling(moments, every)
    return "".join(
        f'<text x="{LEFT + (number + 0.5) * step:.1f}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{moments[number]:{spelling}}</text>"
        for number in range(0, len(moments), every)
    )


def _axis_spelling(moments: Sequence[datetime], every: int) -> str:
    """Return how moments are spelled below a plot, so that no two neighbours look the same."""
    day = timedelta(days=1)
    if moments[-1] - moments[0] < day:
        return "%H:%M"
    is_daily = len(moments) > every and moments[every] - moments[0] >= day
    return "%d %b" if is_daily else "%d %b %H:%M"


def _legend(series: Sequence[Series]) -> str:
    """Say which colour is which series."""
    entries = "".join(
        f'<li><svg viewBox="0 0 10 10" aria-hidden="true"><rect class="c{place}" width="10" '
        f'height="10" rx="2"/></svg>{escaped(_shortened(each.name, LEGEND_CHARS_MAX))}</li>'
        for place, each in enumerate(series)
    )
    return f'<ul class="legend">{entries}</ul>'


def _hint(name: str, moment: datetime, value: str) -> str:
    return f"<title>{escaped(f'{name}, {moment:%Y-%m-%d %H:%M}: {value}')}</title>"
