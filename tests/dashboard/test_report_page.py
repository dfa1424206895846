"""The page of `skep report` in a browser: nothing asked of anybody, and nobody kept out.

With `SKEP_WRITE_SCREENSHOTS=1` the pictures of the guide are made anew.
"""

import math
import os
import random
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from skep.spark.analytics import report_figures
from skep.spark.analytics.hours import HOUR, Hours
from skep.spark.analytics.report import render_report
from skep.spark.analytics.report_figures import gather_figures
from skep.telemetry.histograms import LAG_BOUNDS_MS
from tests.dashboard.support.browser import install_packages
from tests.dashboard.test_looks import serious_issues
from tests.tidy.tree import ROOT

PICTURES = ROOT / "docs" / "guide" / "analytics"
BEGIN = datetime(2026, 5, 4, tzinfo=UTC)
HOURS = Hours(BEGIN, BEGIN + 72 * HOUR)
QUEUES = {"orders": 9000, "payments": 5200, "mail": 3100, "search-index": 1900, "audit": 800,
          "thumbnails": 400, "<b>exports</b>": 150}  # fmt: skip
CAUSES = {
    "HTTP # from the ledger": 412,
    "order # not found": 131,
    "timeout after # ms": 96,
    "the address has no country": 40,
}
GROUPS = {("orders", "billing"): 240, ("mail", "sender"): 95, ("payments", "ledger"): 30}


def listings():
    """Make three days of figures, as busy by day as people are."""
    chance = random.Random(31)
    rows = {name: [] for name in ("QUEUE_HOURS", "HOT_KEYS", "CAUSES", "LAGS")}
    for number in range(72):
        hour = BEGIN + number * HOUR
        tide = 1.15 + math.sin((number % 24 - 8) / 24 * math.tau)
        for queue, size in QUEUES.items():
            messages = int(size * tide * chance.uniform(0.8, 1.2))
            partitions = chance.randrange(8, 40)
            busiest = int(messages / partitions * chance.uniform(1.5, 9))
            rows["QUEUE_HOURS"].append(
                {
                    "hour": hour,
                    "queue": queue,
                    "messages": messages,
                    "bytes": messages * 640,
                    "partitions": partitions,
                    "busiest_messages": busiest,
                    "delivered": messages,
                    "redelivered": messages // chance.randrange(60, 200),
                    "completed": messages,
                    "failed": messages // 300,
                    "lag_ms_max": int(LAG_BOUNDS_MS[9] * tide),
                    "lag_counts": lags(messages, tide, chance),
                }
            )
            key = {"hour": hour, "queue": queue, "kind": "partition"}
            for place in range(3):
                rows["HOT_KEYS"].append(
                    {**key, "key": f"customer-{place * 7}", "messages": busiest // (place + 1)}
                )
        for cause, letters in CAUSES.items():
            rows["CAUSES"].append(
                {"hour": hour, "queue": "orders", "cause": cause, "letters": letters // 72 + 1}
            )
        for (queue, group), lag_s in GROUPS.items():
            worst = int(lag_s * tide**3 * chance.uniform(0.1, 1))
            address = {"hour": hour, "queue": queue, "group_name": group}
            rows["LAGS"].append({**address, "lag_s_max": worst, "backlog_max": worst * 40})
    return {getattr(report_figures, name): found for name, found in rows.items()}


def lags(messages, tide, chance):
    """Spread messages over the histogram, later when there are more of them."""
    middle = 3 + tide * chance.uniform(0.8, 1.2)
    shares = [math.exp(-(((place - middle) / 1.6) ** 2)) for place in range(16)]
    return [int(messages * share / sum(shares)) for share in shares]


@pytest.fixture
def page_place(tmp_path):
    """Where the browser finds the page."""
    found = listings()
    figures = gather_figures(HOURS, lambda listing, _address: iter(found[listing]))
    (tmp_path / "report.html").write_text(render_report(figures, HOURS.upto))
    return SimpleNamespace(url=tmp_path.as_uri())


@pytest.mark.parametrize("colours", ["light", "dark"])
async def test_a_report_keeps_nobody_out_and_asks_nobody(colours, open_page, page_place):
    install_packages()
    stage = await open_page(page_place, "/report.html", colours=colours)
    asked = []
    stage.page.on("request", lambda request: asked.append(request.url))
    await stage.go("/report.html")
    await stage.sees("From push to delivery")

    assert asked == [f"{page_place.url}/report.html"]
    assert await serious_issues(stage) == []
    if os.environ.get("SKEP_WRITE_SCREENSHOTS"):
        PICTURES.mkdir(parents=True, exist_ok=True)
        await stage.page.set_viewport_size({"width": 1000, "height": 1500})
        path = PICTURES / f"report-{colours}.jpg"
        await stage.page.screenshot(path=path, type="jpeg", quality=60)


async def test_a_report_fits_on_a_phone(open_page, page_place):
    stage = await open_page(page_place, "/report.html", size="phone")

    beyond = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert await stage.page.evaluate(beyond) == 0
