"""Is it healthy, what is stuck, what to do: from the overview to the reason, and to the remedy."""

import pytest
from playwright.async_api import expect

from tests.dashboard.test_looks import serious_issues
from tests.sql.support.waiting import eventually

CLICKS_MAX = 4


async def items_of(stage):
    """Return what needs attention, worst first."""
    items = stage.page.get_by_role("region", name="Needs attention").get_by_role("listitem")
    await expect(items.first).to_be_visible()
    return items


@pytest.fixture
def quiet_broker(start_broker, built_site):
    with start_broker("--workers", "1", metrics_interval_s=1) as broker:
        yield broker


async def test_which_consumer_is_behind_and_why_takes_few_clicks(open_page, shown_broker, filled):
    stage = await open_page(shown_broker, "/")
    clicks = 0
    items = await items_of(stage)
    behind = items.filter(has_text="ledger on invoices is stalled").first
    await expect(behind).to_contain_text("critical")
    await expect(behind).to_contain_text("the handler raises errors")

    await behind.get_by_role("link", name="Open group").click()
    clicks += 1
    await stage.sees("ledger", role="heading")
    await expect(stage.page.locator(".page-head .badge")).to_have_text("stalled")
    await expect(await items_of(stage)).to_contain_text(["the handler raises errors"])

    await stage.page.get_by_role("group", name="Partitions").locator(".heat-4").first.click()
    clicks += 1
    await stage.click("Messages of this partition", role="link")
    clicks += 1
    await stage.page.wait_for_url("**/messages?queue=invoices&partition=customer-*")
    assert clicks <= CLICKS_MAX


async def test_worst_comes_first_with_a_way_on(open_page, shown_broker, filled):
    stage = await open_page(shown_broker, "/")
    items = await items_of(stage)

    severities = [text.split()[0] for text in await items.all_inner_texts()]
    assert severities == sorted(severities, key=["critical", "warning", "notice"].index)
    for text in ("default group on mail.outgoing has no consumers", "clicks failed", "Resume"):
        await expect(items.filter(has_text=text).first).to_be_visible()
    states = stage.page.get_by_role("region", name="States")
    await states.get_by_role("link", name="stalled").click()
    await stage.row("Consumer groups", "ledger", "stalled")


async def test_a_paused_queue_is_resumed_with_one_click(quiet_broker, open_page, queue):
    async with quiet_broker.connect() as client:
        await client.push_payloads(queue, 1)
        await client.post(f"/api/v1/queues/{queue}/pause", {})
        stage = await open_page(quiet_broker, "/")
        item = (await items_of(stage)).filter(has_text=f"{queue} is paused")

        await item.get_by_role("button", name="Resume queue").click()

        await expect(item.get_by_text("done")).to_be_visible()
        await eventually(lambda: client.pop(queue))
        assert await serious_issues(stage) == []
        await stage.go("/")
        await stage.sees("Nothing needs attention")
