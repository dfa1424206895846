"""Each page: no error in the console, nothing that keeps people out, text that stays text.

With `SKEP_WRITE_SCREENSHOTS=1` the pictures of the guide are made anew.
"""

import json
import os
from urllib.parse import quote

import pytest

from tests.dashboard.browser import DASHBOARD, install_packages
from tests.dashboard.scenery import fill, message_page
from tests.tidy.tree import ROOT

PICTURES = ROOT / "docs" / "guide" / "dashboard"
PAGES = {
    "overview": ("/", "Messages per second"),
    "queues": ("/queues", "orders"),
    "queue": ("/queues/orders", "Waiting polls"),
    "partitions": ("/queues/orders?tab=partitions", "customer-0"),
    "configuration": ("/queues/orders?tab=configuration", "JSON Schema"),
    "messages": ("/messages?queue=orders", "orders-119"),
    "message": (None, "Timeline"),
    "groups": ("/groups", "Stuck partitions"),
    "group": ("/groups/billing/orders", "Lag by partition"),
    "dead-letters": ("/dead-letters", "the ledger did not answer"),
    "chains": ("/chains", "Chains and jobs"),
    "pipelines": ("/pipelines", "Pipelines"),
    "traces": ("/traces", "order-journey"),
    "streams": ("/streams", "orders-per-minute"),
    "operations": ("/operations", "Scheduled messages"),
    "system": ("/system", "Bloat and vacuum"),
    "settings": ("/settings", "database_url"),
}
HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"


@pytest.fixture(scope="module")
def shown_broker(start_broker, built_site):
    with start_broker("--workers", "1") as broker:
        yield broker


@pytest.fixture
def filled(shown_broker, arun):
    """The address of a message, in a broker that has something to show."""

    async def prepare():
        async with shown_broker.connect() as client:
            answer = await client.call("GET", "/api/v1/resources/queues")
            if not json.loads(answer.body)["total"]:
                await fill(client)
            return await message_page(client, "orders")

    return arun(prepare())


async def serious_issues(stage):
    """Let axe look for what keeps people out."""
    # The policy of the page forbids injected scripts; the protocol of the browser does not ask it.
    await stage.page.evaluate((DASHBOARD / "node_modules/axe-core/axe.min.js").read_text())
    found = await stage.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        (issue["id"], node["target"])
        for issue in found["violations"]
        if issue["impact"] in {"serious", "critical"}
        for node in issue["nodes"][:3]
    ]


async def visit_pages(stage, message_address):
    """Open one page after the other, each until it shows what it is for."""
    for name, (path, text) in PAGES.items():
        await stage.go(path or message_address)
        await stage.sees(text)
        yield name


@pytest.mark.parametrize("colours", ["light", "dark"])
async def test_pages_keep_nobody_out_and_show_no_error(colours, open_page, shown_broker, filled):
    install_packages()
    stage = await open_page(shown_broker, "/", colours=colours)
    found = {}
    async for name in visit_pages(stage, filled):
        alerts = await stage.page.get_by_role("alert").all_inner_texts()
        if troubles := [*await serious_issues(stage), *alerts]:
            found[name] = troubles
        if os.environ.get("SKEP_WRITE_SCREENSHOTS"):
            await take_picture(stage, PICTURES / f"{name}-{colours}.jpg")

    assert found == {}


async def take_picture(stage, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    await stage.page.wait_for_load_state("load")
    await stage.page.set_viewport_size({"width": 1120, "height": 760})
    await stage.page.wait_for_timeout(700)
    await stage.page.screenshot(path=path, type="jpeg", quality=60)


async def test_pages_fit_on_a_phone(open_page, shown_broker, filled):
    stage = await open_page(shown_broker, "/", size="phone")
    beyond = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

    too_wide = [
        name async for name in visit_pages(stage, filled) if await stage.page.evaluate(beyond) > 0
    ]

    assert too_wide == []


async def test_the_first_content_is_there_within_a_second(open_page, shown_broker, filled):
    stage = await open_page(shown_broker, "/")
    await stage.sees("Messages per second")

    painted = await stage.page.evaluate(
        "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    assert painted < 1000


async def test_nothing_is_asked_of_anybody_else(open_page, shown_broker, filled):
    stage = await open_page(shown_broker, "/settings")
    asked = []
    stage.page.on("request", lambda request: asked.append(request.url))
    await stage.go("/")
    await stage.sees("Messages per second")

    assert asked
    assert [url for url in asked if not url.startswith((shown_broker.url, "data:"))] == []


async def test_markup_in_what_users_send_stays_text(open_page, broker, client):
    queue = f"hostile {HOSTILE}"
    await client.configure(queue, retryLimit=0)
    await client.push(
        {
            "queue": queue,
            "partition": f"partition {HOSTILE}",
            "payload": {HOSTILE: HOSTILE},
            "headers": {"x-note": HOSTILE},
            "transactionId": f"id {HOSTILE}",
        },
        {"queue": queue, "partition": "calm", "payload": HOSTILE},
    )
    popped = await client.pop(queue, consumerGroup=f"group {HOSTILE}", batch=5, partitions=5)
    await client.post("/api/v1/traces", hostile_trace(popped[0]))
    failed = {**popped[0], "status": "failed", "error": f"error {HOSTILE}"}
    await client.post("/api/v1/ack", failed)
    stage = await open_page(broker, "/queues")

    encoded, group = quote(queue, safe=""), quote(f"group {HOSTILE}", safe="")
    trace = quote(f"trace {HOSTILE}", safe="")
    for path in (
        "/queues",
        f"/queues/{encoded}",
        f"/queues/{encoded}?tab=partitions",
        f"/queues/{encoded}?tab=groups",
        f"/messages?queue={encoded}",
        await message_page(client, encoded),
        "/groups",
        f"/groups/{group}/{encoded}",
        "/dead-letters",
        "/traces",
        f"/traces/{trace}",
    ):
        await stage.go(path)
        await stage.sees("<script>window.hacked=1</script>")
        assert await stage.page.evaluate("window.hacked") is None, path


def hostile_trace(message):
    return {
        "transactionId": message["transactionId"],
        "partitionId": message["partitionId"],
        "data": {"text": HOSTILE},
        "eventType": f"event {HOSTILE}",
        "traceNames": [f"trace {HOSTILE}"],
    }
