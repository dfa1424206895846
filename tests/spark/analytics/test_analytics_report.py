"""The report: figures that add up, and a page that needs nothing and lets nothing in."""

import random
from collections import Counter
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from skep.cli.commands import app
from skep.model.errors import BadRequest, NotFound
from skep.spark.analytics import report_figures
from skep.spark.analytics.hours import DAY, HOUR, Hours
from skep.spark.analytics.report import lag_series, latency_series, render_report, volume_series
from skep.spark.analytics.report_figures import BUCKETS_MAX, bucket_length, gather_figures, rows_of
from skep.spark.analytics.report_plots import (
    Ranked,
    Series,
    escaped,
    lines,
    nice_step,
    ranking,
    spell_bytes,
    spell_count,
    spell_milliseconds,
    stacked_bars,
)
from skep.spark.runtime.postgres import forget_connections
from skep.telemetry.histograms import LAG_BOUNDS_MS

NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)
DAY_LONG = Hours(NOON, NOON + DAY)
EVIL = "</title><script src=https://evil.example/x.js></script>\0"
VOID = {"meta", "line", "rect", "path", "circle"}


class Page(HTMLParser):
    """Collects what a page is made of, and complains when tags do not match."""

    def __init__(self, text):
        super().__init__()
        self.tags = Counter()
        self.attributes = set()
        self.texts = []
        self._open = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def queue_hour(hours, queue, messages=0, size=0, delivered=0, redelivered=0, lags=None):
    counts = [0] * (len(LAG_BOUNDS_MS) + 1)
    for place, count in (lags or {}).items():
        counts[place] = count
    return {
        "hour": NOON + hours * HOUR,
        "queue": queue,
        "messages": messages or None,
        "bytes": size,
        "partitions": 4,
        "busiest_messages": messages,
        "delivered": delivered,
        "redelivered": redelivered,
        "completed": 0,
        "failed": 1,
        "lag_ms_max": LAG_BOUNDS_MS[max(lags)] if lags else 0,
        "lag_counts": counts,
    }


def reader(queues=(), keys=(), causes=(), lags=()):
    """Return what reads these rows instead of a database."""
    address = {"hour": NOON, "queue": EVIL}
    listings = {
        report_figures.QUEUE_HOURS: queues,
        report_figures.HOT_KEYS: [
            {**address, "kind": "partition", "key": key, "messages": count} for key, count in keys
        ],
        report_figures.CAUSES: [
            {**address, "cause": cause, "letters": letters} for cause, letters in causes
        ],
        report_figures.LAGS: [
            {**address, "hour": NOON + hours * HOUR, "group_name": group, "lag_s_max": lag_s,
             "backlog_max": 3}
            for hours, group, lag_s in lags
        ],
    }  # fmt: skip
    return lambda listing, _address: iter(listings[listing])


def test_figures_are_those_of_a_small_model_on_random_rows():
    chance = random.Random(6)
    rows = [
        queue_hour(hours, f"q{number}", chance.randrange(1, 99), chance.randrange(999))
        for hours in range(24)
        for number in range(9)
        if chance.random() < 0.7
    ]
    figures = gather_figures(DAY_LONG, reader(rows))
    messages, sizes = Counter(), Counter()
    for row in rows:
        messages[row["queue"]] += row["messages"]
        sizes[row["hour"]] += row["bytes"]

    assert figures.buckets == [NOON + number * HOUR for number in range(24)]
    assert {name: each.messages for name, each in figures.queues.items()} == messages
    assert figures.bytes == sizes
    series = volume_series(figures)
    busiest = sorted(messages, key=lambda name: (-messages[name], name))[:5]
    assert [each.name for each in series] == [*busiest, "other queues"]
    assert [sum(each.values) for each in series[:5]] == [messages[name] for name in busiest]
    assert sum(sum(each.values) for each in series) == messages.total()


def test_latencies_are_those_of_all_queues_together_with_gaps_where_nothing_is_known():
    rows = [
        queue_hour(0, "a", delivered=4, lags={3: 4}),
        queue_hour(0, "b", delivered=4, lags={4: 4}),
        queue_hour(2, "a", delivered=1, lags={0: 1}),
    ]
    figures = gather_figures(DAY_LONG, reader(rows))
    half, _, _ = latency_series(figures)

    assert half.values[:3] == [10, None, 0.5]
    assert (figures.total.delivered, figures.total.failed) == (9, 3)


def test_the_groups_furthest_behind_are_drawn():
    lags = [(hours, f"g{number}", number) for hours in (0, 3) for number in range(9)]
    figures = gather_figures(DAY_LONG, reader(lags=lags))

    series = lag_series(figures)

    assert [each.name.split()[0] for each in series] == ["g8", "g7", "g6", "g5", "g4", "g3"]
    assert series[0].values[:4] == [8, None, None, 8]


@settings(deadline=None)
@given(st.integers(1, 24 * 400), st.integers(0, 200))
def test_buckets_cover_all_hours_and_are_few(count, start):
    hours = Hours(NOON + start * HOUR, NOON + (start + count) * HOUR)
    figures = gather_figures(hours, reader())

    assert len(figures.buckets) <= BUCKETS_MAX + 1
    assert figures.buckets[0] <= hours.since
    assert figures.buckets[-1] < hours.upto <= figures.buckets[-1] + bucket_length(hours)
    assert figures.bucket_of(hours.upto - HOUR) == figures.buckets[-1]


def test_names_from_outside_do_nothing_in_a_page():
    figures = gather_figures(
        DAY_LONG,
        reader(
            [queue_hour(0, EVIL, 5, 5, delivered=2, redelivered=1, lags={3: 2})],
            keys=[(EVIL, 5)],
            causes=[(EVIL, 2)],
            lags=[(0, EVIL, 9)],
        ),
    )

    text = render_report(figures, NOON, EVIL)
    page = Page(text)

    assert page.tags["script"] == page.tags["img"] == page.tags["link"] == 0
    assert not page.attributes & {"src", "href", "onclick", "onload"}
    assert "default-src 'none'" in text
    assert "url(" not in text
    assert "\0" not in text
    assert any("evil.example" in each for each in page.texts)
    assert page.tags["section"] == 9


def test_a_page_without_anything_to_plot_is_whole():
    page = Page(render_report(gather_figures(DAY_LONG, reader()), NOON))

    assert page.tags["section"] == 9
    assert page.texts.count("None.") == 3


@settings(deadline=None)
@given(st.text(), st.lists(st.none() | st.floats(0, 1e15), min_size=1, max_size=30))
def test_plots_of_anything_are_well_formed(name, values):
    moments = [NOON + number * HOUR for number in range(len(values))]
    series = [Series(name, values), Series("other", values)]

    for text in (
        stacked_bars(name, moments, series),
        lines(name, moments, series),
        lines(name, moments, series, is_logarithmic=True),
        ranking(name, [Ranked(name, value or 0, name) for value in values]),
    ):
        assert Page(text).tags["svg"] >= 1
        assert "nan" not in text
        assert "inf" not in text.replace(escaped(name), "")


def test_lines_have_gaps_where_nothing_is_known():
    moments = [NOON + number * HOUR for number in range(5)]

    drawn = lines("a", moments, [Series("x", [1, 2, None, None, 3])])

    assert Page(drawn).tags["path"] == 2
    assert Page(drawn).tags["circle"] == 3


@settings(deadline=None)
@given(st.floats(1e-6, 1e12))
def test_steps_of_axes_are_round_and_large_enough(step):
    nice = nice_step(step)

    assert step * (1 - 1e-6) <= nice <= step * 10
    assert f"{nice:.0e}"[0] in "125"


def test_figures_are_spelled_shortly():
    assert [spell_count(each) for each in (0, 7, 1234, 5_000_000)] == ["0", "7", "1.23 k", "5 M"]
    assert [spell_bytes(each) for each in (7, 2048)] == ["7 B", "2.05 kB"]
    assert [spell_milliseconds(each) for each in (1.5, 2500, 90_000, 7_200_000)] == [
        "1.5 ms",
        "2.5 s",
        "1.5 min",
        "2 h",
    ]


@pytest.fixture
def known(writer):
    """Two queues with an hour each, as a run has left them."""
    insert = "insert into skep.analytics_volume values ($1, $2, 10, 100, 4, 5)"
    writer.rows(insert, NOON, "wasps")
    writer.rows(insert, NOON, 'say "hi", \\')
    yield writer
    forget_connections()


@pytest.fixture
def skep(database_url, tmp_path):
    """Run `skep report`; return the page, or raise what it raised."""

    def invoke(*arguments, out=tmp_path / "report.html"):
        flags = ["--database-url", database_url, "--out", str(out)]
        ended = CliRunner().invoke(app, ["report", *flags, *arguments])
        if ended.exception is not None:
            raise ended.exception
        assert str(out) in ended.stdout
        return out.read_text()

    return invoke


def test_rows_come_page_by_page(known, database_url, monkeypatch):
    monkeypatch.setattr(report_figures, "PAGE_ROWS", 1)

    figures = gather_figures(DAY_LONG, rows_of(database_url, DAY_LONG, None))

    assert sorted(figures.queues) == ['say "hi", \\', "wasps"]
    assert sum(figures.messages.values()) == 20


def test_a_person_writes_a_report(known, skep):
    hours = ["--from", "2026-05-04T00:30", "--to", "2026-05-05"]

    assert "wasps" in "".join(Page(skep(*hours)).texts)
    assert "wasps" not in "".join(Page(skep(*hours, "--queue", 'say "hi", \\')).texts)


def test_a_report_about_nothing_or_to_nowhere_is_refused(known, skep, tmp_path):
    with pytest.raises(NotFound, match="skep analytics run"):
        skep("--to", "2026-04-01")
    with pytest.raises(BadRequest, match="no full hour"):
        skep("--from", "2026-05-04T12:10", "--to", "2026-05-04T12:50")
    with pytest.raises(BadRequest, match="cannot write"):
        skep("--from", "2026-05-04", "--to", "2026-05-05", out=tmp_path)
