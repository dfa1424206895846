"""The report: one HTML page about some hours, that needs nothing but itself. Pure.

No scripts, no fonts, no requests: its policy forbids them, so that a name of a queue can do no harm
even if one were spelled wrongly. Light or dark goes by what the reader's system prefers.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

from skep.spark.analytics import report_plots as plots
from skep.spark.analytics.report_figures import Deliveries, Figures

RANKED_MAX: Final = 10
QUEUES_LISTED: Final = 50
OTHERS: Final = "other queues"

_STYLE: Final = """
:root { color-scheme: light dark; --ground: #fcfcfb; --card: #fff; --ink: #1d1d1b; --soft: #5f5e5a;
  --rule: #e3e2dd; --c0: #2a78c8; --c1: #d9772b; --c2: #2e9b7b; --c3: #b2487f; --c4: #8a6fc9;
  --c5: #8d8c86; }
@media (prefers-color-scheme: dark) { :root { --ground: #161615; --card: #1f1f1d; --ink: #ecebe7;
  --soft: #a6a59f; --rule: #363632; --c0: #5aa3ea; --c1: #e8945a; --c2: #4fbf9c; --c3: #d878ab;
  --c4: #ab94e6; --c5: #85847e; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1rem; max-width: 60rem; background: var(--ground);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { margin: 0; font-size: 1.6rem; } h2 { margin: 0 0 .2rem; font-size: 1.05rem; }
p { margin: 0 0 .8rem; color: var(--soft); }
section { margin: 1rem 0; padding: 1rem 1.2rem; background: var(--card);
  border: 1px solid var(--rule); border-radius: 10px; overflow-x: auto; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(7.2rem, 1fr)); gap: .7rem;
  margin: 1rem 0; }
dl div { padding: .7rem .9rem; background: var(--card); border: 1px solid var(--rule);
  border-radius: 10px; }
dt { color: var(--soft); font-size: .8rem; } dd { margin: 0; font-size: 1.35rem; }
svg { display: block; width: 100%; height: auto; font: 11px system-ui, sans-serif; }
svg text { fill: var(--soft); } .grid line { stroke: var(--rule); }
.line { fill: none !important; stroke-width: 2; stroke-linejoin: round; }
.c0 { fill: var(--c0); stroke: var(--c0); } .c1 { fill: var(--c1); stroke: var(--c1); }
.c2 { fill: var(--c2); stroke: var(--c2); } .c3 { fill: var(--c3); stroke: var(--c3); }
.c4 { fill: var(--c4); stroke: var(--c4); } .c5 { fill: var(--c5); stroke: var(--c5); }
rect { stroke: none !important; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; margin: .5rem 0 0; padding: 0;
  list-style: none; color: var(--soft); font-size: .8rem; }
.legend li { display: flex; align-items: center; gap: .4rem; }
.legend svg { width: 10px; height: 10px; }
table { width: 100%; border-collapse: collapse; font-size: .85rem; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--rule); text-align: right;
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; max-width: 18rem; overflow: hidden;
  text-overflow: ellipsis; }
th { color: var(--soft); font-weight: 500; }
"""


def render_report(figures: Figures, made_at: datetime, queue: str | None = None) -> str:
    """Return the page, about all queues or only one."""
    about = f" of queue {queue}" if queue is not None else ""
    hours = f"{figures.hours.since:%Y-%m-%d %H:%M} to {figures.hours.upto:%Y-%m-%d %H:%M} UTC"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{plots.escaped(f'Skep report{about}')}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{plots.escaped(f'Skep report{about}')}</h1>"
        f"<p>{hours}, made {made_at:%Y-%m-%d %H:%M} UTC</p>"
        f"{_summary(figures)}{''.join(_sections(figures))}</body></html>\n"
    )


def _summary(figures: Figures) -> str:
    total = figures.total
    share = total.redelivered / total.delivered if total.delivered else None
    facts = {
        "messages stored": plots.spell_count(sum(figures.messages.values())),
        "payloads": plots.spell_bytes(sum(figures.bytes.values())),
        "delivered": plots.spell_count(total.delivered),
        "redelivered": "-" if share is None else f"{share:.1%}",
        "half within": _latency(total.lag_ms(0.5)),
        "99% within": _latency(total.lag_ms(0.99)),
        "dead letters": plots.spell_count(sum(figures.causes.values())),
    }
    tiles = "".join(
        f"<div><dt>{plots.escaped(name)}</dt><dd>{plots.escaped(fact)}</dd></div>"
        for name, fact in facts.items()
    )
    return f"<dl>{tiles}</dl>"


def _sections(figures: Figures) -> Iterator[str]:
    moments, sizes = figures.buckets, [figures.bytes[each] for each in figures.buckets]
    causes = [
        plots.Ranked(cause or "(no error)", letters, f", queue {queue}")
        for (queue, cause), letters in figures.causes.most_common(RANKED_MAX)
    ]
    keys = [
        plots.Ranked(f"{queue}: {key}", messages, f", {kind}")
        for (queue, kind, key), messages in figures.keys.most_common(RANKED_MAX)
    ]
    latencies = latency_series(figures)
    trouble = [
        _delivery_series(figures, "redelivered", lambda each: each.redelivered),
        _delivery_series(figures, "failed", lambda each: each.failed),
    ]
    sections: tuple[tuple[str, str, Callable[[str], str]], ...] = (
        (
            "Messages stored",
            "By the log and its archive, the busiest queues apart.",
            lambda title: plots.stacked_bars(title, moments, volume_series(figures)),
        ),
        (
            "Bytes stored",
            "Payloads as they were pushed.",
            lambda title: plots.stacked_bars(
                title, moments, [plots.Series("payloads", sizes)], plots.spell_bytes
            ),
        ),
        (
            "From push to delivery",
            (
                "Estimates within the histograms of the brokers; redeliveries count too. When a "
                "message was acknowledged is not on record."
            ),
            lambda title: plots.lines(
                title, moments, latencies, plots.spell_milliseconds, is_logarithmic=True
            ),
        ),
        (
            "Redelivered and failed",
            "Messages that were delivered again, and negative acknowledgements.",
            lambda title: plots.lines(title, moments, trouble),
        ),
        (
            "What messages died of",
            "Dead letters by the first line of their error, with # for numbers and ids.",
            lambda title: plots.ranking(title, causes),
        ),
        (
            "Partition skew",
            "The busiest partition over the average one, in the worst hour of each queue.",
            lambda title: plots.ranking(title, _skewed(figures), plots.spell_ratio),
        ),
        (
            "Hot keys",
            (
                "Partitions, and keys that runs were told to go by, with the messages of the hours "
                "in which they were among the first."
            ),
            lambda title: plots.ranking(title, keys),
        ),
        (
            "Group lag",
            "The age of the oldest message that was not done, at worst.",
            lambda title: plots.lines(title, moments, lag_series(figures), plots.spell_seconds),
        ),
        ("Queues", "The busiest ones.", lambda _title: _queue_table(figures)),
    )
    for title, note, draw in sections:
        yield (
            f"<section><h2>{plots.escaped(title)}</h2><p>{plots.escaped(note)}</p>{draw(title)}</section>"
        )


def volume_series(figures: Figures) -> list[plots.Series]:
    """Return the messages of the busiest queues, and those of all others together."""
    ranked = sorted(figures.queues, key=lambda name: (-figures.queues[name].messages, name))
    chosen, rest = ranked[: plots.SERIES_MAX - 1], ranked[plots.SERIES_MAX - 1 :]
    moments, counts = figures.buckets, figures.messages
    series = [plots.Series(name, [counts[each, name] for each in moments]) for name in chosen]
    if rest:
        others = [sum(counts[each, name] for name in rest) for each in moments]
        series.append(plots.Series(OTHERS, others))
    return series


def latency_series(figures: Figures) -> list[plots.Series]:
    """Return within which time half, 95% and 99% of the messages were delivered."""
    shares = {"half": 0.5, "95%": 0.95, "99%": 0.99}
    return [
        _delivery_series(figures, name, lambda each, share=share: each.lag_ms(share))
        for name, share in shares.items()
    ]


def _delivery_series(
    figures: Figures, name: str, value: Callable[[Deliveries], float | None]
) -> plots.Series:
    known = figures.deliveries
    return plots.Series(name, [value(known[at]) if at in known else None for at in figures.buckets])


def lag_series(figures: Figures) -> list[plots.Series]:
    """Return the lag of the groups that were furthest behind."""
    worst = sorted(figures.lags_s.items(), key=lambda item: (-max(item[1].values()), item[0]))
    return [
        plots.Series(f"{group} on {queue}", [lags_s.get(each) for each in figures.buckets])
        for (queue, group), lags_s in worst[: plots.SERIES_MAX]
    ]


def _skewed(figures: Figures) -> list[plots.Ranked]:
    skewed = sorted(figures.queues.items(), key=lambda item: (-item[1].skew, item[0]))
    return [
        plots.Ranked(name, each.skew, f", {plots.spell_count(each.messages)} messages")
        for name, each in skewed[:RANKED_MAX]
        if each.skew
    ]


def _queue_table(figures: Figures) -> str:
    heads = (
        *("queue", "messages", "bytes", "delivered", "redelivered", "failed"),
        *("dead letters", "half within", "99% within"),
    )
    ranked = sorted(figures.queues.items(), key=lambda item: (-item[1].messages, item[0]))
    rows = "".join(
        f"<tr>{''.join(f'<td>{plots.escaped(cell)}</td>' for cell in cells)}</tr>"
        for cells in (
            (
                name,
                plots.spell_count(each.messages),
                plots.spell_bytes(each.bytes),
                plots.spell_count(each.deliveries.delivered),
                plots.spell_count(each.deliveries.redelivered),
                plots.spell_count(each.deliveries.failed),
                plots.spell_count(each.letters),
                _latency(each.deliveries.lag_ms(0.5)),
                _latency(each.deliveries.lag_ms(0.99)),
            )
            for name, each in ranked[:QUEUES_LISTED]
        )
    )
    head = "".join(f"<th>{plots.escaped(each)}</th>" for each in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _latency(value: float | None) -> str:
    return "-" if value is None else plots.spell_milliseconds(value)
