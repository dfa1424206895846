"""Is it healthy, what is stuck, what to do: from the overview to the reason, and to the remedy."""

import re

import pytest
from playwright.async_api import expect

from tests.dashboard.support.scenery import fail_all
from tests.dashboard.test_looks import serious_issues
from tests.sql.support.waiting import eventually

CLICKS_MAX = 4
YESTERDAY = """
update skep.dead_letter d set failed_at = d.failed_at - interval '1 day'
from (
  select d.id from skep.dead_letter d join skep.queue q on q.id = d.queue_id
  where q.name = $1 order by d.id limit 7
) old
where old.id = d.id
"""


async def items_of(stage):
    """Return what needs attention, worst first."""
    items = stage.page.get_by_role("region", name="Needs attention").get_by_role("listitem")
    await expect(items.first).to_be_visible()
    return items


@pytest.fixture(scope="module")
def shown_broker(start_broker, built_site):
    """One of its own: the consumers of a broker that was filled minutes ago have left."""
    with start_broker("--workers", "1", metrics_interval_s=1) as broker:
        yield broker


@pytest.fixture
def quiet_broker(start_broker, built_site):
    with start_broker("--workers", "1", metrics_interval_s=1) as broker:
        yield broker


async def test_which_consumer_is_behind_and_why_takes_few_clicks(open_page, shown_broker, filled):
    stage = await open_page(shown_broker, "/")
    clicks = await stage.count_clicks()
    items = await items_of(stage)
    behind = items.filter(has_text="ledger on invoices is stalled").first
    await expect(behind).to_contain_text("critical")
    await expect(behind).to_contain_text("the handler raises errors")

    await behind.get_by_role("link", name="Open group").click()
    await stage.sees("ledger", role="heading")
    await expect(stage.page.locator(".page-head .badge")).to_have_text("stalled")
    await expect(await items_of(stage)).to_contain_text(["the handler raises errors"])

    await stage.page.get_by_role("group", name="Partitions").locator(".heat-4").first.click()
    await stage.click("Messages of this partition", role="link")
    await stage.page.wait_for_url("**/messages?queue=invoices&partition=customer-*")
    assert await clicks() <= CLICKS_MAX


async def test_yesterdays_dead_letters_are_redriven_in_few_clicks(open_page, broker, client, queue):
    await client.push_payloads(queue, *range(7))
    await fail_all(client, queue, group="billing", error="totals are rounded wrong")
    await client.push_payloads(queue, "of today")
    await fail_all(client, queue, group="billing", error="totals are rounded wrong")
    async with broker.sql() as sql:
        await sql.execute(YESTERDAY, queue)
    stage = await open_page(broker, "/")
    clicks = await stage.count_clicks()

    await stage.click("dead letters", role="link", exact=False)
    await stage.click("Yesterday", role="link")
    row = await stage.row("Dead letters by error", "totals are rounded wrong", "7")
    await row.get_by_role("button", name="Redrive these").click()
    await stage.click("Push 7 again")

    await stage.sees("7 of 7 pushed again")
    assert await clicks() <= CLICKS_MAX
    assert len(await client.pop(queue, consumerGroup="billing", batch=10)) == 7


async def test_why_the_chain_of_an_order_failed_takes_few_clicks(open_page, shown_broker, filled):
    stage = await open_page(shown_broker, "/")
    clicks = await stage.count_clicks()
    items = await items_of(stage)

    await items.get_by_role("link", name="1 chain of assemble failed").click()
    row = await stage.row("Chains", "order-48097")
    await row.get_by_role("link").click()

    reason = stage.page.get_by_role("region", name="Why it failed")
    await expect(reason).to_contain_text("polish failed after 2 attempts")
    await expect(reason).to_contain_text("RuntimeError: out of wax for the bell of order-48097")
    assert await clicks() <= CLICKS_MAX


async def test_worst_comes_first_with_a_way_on(open_page, shown_broker, filled):
    stage = await open_page(shown_broker, "/")
    items = await items_of(stage)

    severities = [text.split()[0] for text in await items.all_inner_texts()]
    assert severities == sorted(severities, key=["critical", "warning", "notice"].index)
    for text in ("default group on mail.outgoing has no consumers", "clicks failed", "Resume"):
        await expect(items.filter(has_text=text).first).to_be_visible()
    latencies = stage.page.get_by_role("region", name="Push to delivery").get_by_role("listitem")
    await expect(latencies).to_have_text([re.compile(rf"p{n} \d") for n in (50, 95, 99)])
    states = stage.page.get_by_role("region", name="States")
    await states.get_by_role("link", name="stalled").click()
    await stage.row("Consumer groups", "ledger", "stalled")


async def test_queues_show_what_flows_and_who_is_behind(open_page, shown_broker, filled):
    stage = await open_page(shown_broker, "/queues")
    row = await stage.row("Queues", "invoices", "stalled")
    await expect(row.get_by_role("img")).to_be_visible()
    rates = await row.locator('[data-title="In/s"]').inner_text()
    assert float(rates) > 0

    await stage.click("Lag", role="link")
    first = stage.page.get_by_role("table", name="Queues").locator("tbody tr").first
    await expect(first).to_contain_text("mail.outgoing")

    await stage.go("/")
    states = stage.page.get_by_role("region", name="States")
    await states.get_by_role("link", name="paused").last.click()
    await stage.row("Queues", "shipping.labels", "paused")
    await expect(stage.page.get_by_role("link", name="payments")).to_have_count(0)


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
