"""Charts in a real browser: what they say, and the range that all pages share."""

import re

import pytest
from playwright.async_api import expect

from tests.dashboard.support.history import Activity, Worker
from tests.dashboard.test_looks import serious_issues


@pytest.fixture
def busy_queue(arun, broker, queue):
    """A queue with half an hour behind it."""

    async def prepare():
        async with broker.connect() as client, broker.sql() as sql:
            await client.configure(queue)
            worker = await Worker.register(sql, "past.example", 1)
            for ago in range(1, 31):
                activity = Activity(pushed=6000, popped=3000, lag_ms=40)
                await worker.report(ago, {queue: activity}, {})
        return queue

    return arun(prepare())


def plot_of(stage, title):
    return stage.page.get_by_role("region", name=title).locator(".plot")


async def drag_over(stage, plot):
    """Drag over the middle third of a chart."""
    canvas = await plot.locator(".u-over").bounding_box()
    at = canvas["y"] + canvas["height"] / 2
    await stage.page.mouse.move(canvas["x"] + canvas["width"] / 3, at)
    await stage.page.mouse.down()
    await stage.page.mouse.move(canvas["x"] + canvas["width"] * 2 / 3, at, steps=3)
    await stage.page.mouse.up()


async def test_a_chart_tells_its_values_in_its_head_and_at_the_cursor(
    open_page, broker, busy_queue
):
    stage = await open_page(broker, f"/queues/{busy_queue}?range=15m")
    chart = stage.page.get_by_role("region", name="Messages per second")
    plot = plot_of(stage, "Messages per second")

    await expect(chart.get_by_role("listitem").filter(has_text="Acknowledged")).to_be_visible()
    await plot.locator(".u-over").hover()

    tip = plot.locator(".tip")
    await expect(tip).to_be_visible()
    await expect(tip).to_contain_text("In100")
    await expect(tip).to_contain_text("Out50")


async def test_charts_mark_when_a_broker_was_deployed(open_page, broker, busy_queue):
    stage = await open_page(broker, f"/queues/{busy_queue}?range=15m")
    plot = plot_of(stage, "Messages per second")

    await expect(plot).to_have_attribute("aria-label", re.compile(r"Version \S+ deployed · \S+"))


async def test_a_chart_with_nothing_to_draw_says_why(open_page, broker, busy_queue):
    stage = await open_page(broker, f"/queues/{busy_queue}")

    await stage.sees("Nothing failed in this time.")
    await stage.sees("No consumer waited for messages in this time.")


async def test_dragging_zooms_all_charts_and_there_is_a_way_back(open_page, broker, busy_queue):
    stage = await open_page(broker, f"/queues/{busy_queue}?range=6h")

    await drag_over(stage, plot_of(stage, "Messages per second"))

    await expect(stage.page).to_have_url(re.compile(r"range=6h&zoom=\d+-\d+"))
    await stage.click("System", role="link")
    await expect(stage.page).to_have_url(re.compile(r"/system\?range=6h&zoom=\d+-\d+"))
    await stage.click("Back to the last 6h", role="link", exact=False)
    await expect(stage.page).to_have_url(re.compile(r"/system\?range=6h$"))


async def test_a_table_is_sorted_by_a_click_on_the_name_of_a_column(open_page, broker, client):
    for name, messages in (("few", 1), ("many", 5), ("some", 3)):
        await client.push_payloads(f"sorted-{name}", *range(messages))
    stage = await open_page(broker, "/queues?search=sorted-")
    rows = stage.page.get_by_role("table", name="Queues").locator("tbody tr td:first-child")

    await stage.click("Waiting", role="link")
    await expect(rows).to_have_text(["sorted-many", "sorted-some", "sorted-few"])
    await stage.click("Waiting", role="link")
    await expect(rows).to_have_text(["sorted-few", "sorted-some", "sorted-many"])


async def test_the_keyboard_searches_goes_to_pages_and_helps(open_page, broker, client, queue):
    await client.configure(queue)
    stage = await open_page(broker, "/settings")
    await stage.sees("database_url")
    press = stage.page.keyboard.press

    await press("g")
    await press("q")
    await stage.page.wait_for_url("**/queues")
    await press("/")
    await expect(stage.page.get_by_label("Search")).to_be_focused()
    await stage.page.keyboard.type("g q?")
    await stage.page.wait_for_url("**/queues?search=g+q%3F")

    await stage.page.get_by_role("heading", name="Queues").click()
    await press("?")
    dialog = stage.page.get_by_role("dialog", name="Keyboard")
    await expect(dialog).to_contain_text("g qQueues")
    assert await serious_issues(stage) == []
    await press("Escape")
    await expect(dialog).to_have_count(0)


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("/queues/no-such", "Queue not found"),
        ("/groups/no-such/neither", "Consumer group not found"),
        ("/pipelines/no-such", "Pipeline not found"),
        ("/chains/00000000-0000-7000-8000-000000000000", "Chain not found"),
        ("/no-such", "Page not found"),
        ("/settings/no-such", "Page not found"),
        ("/groups/only-a-group", "Page not found"),
    ],
)
async def test_an_unknown_address_is_a_page_that_says_so(path, title, open_page, broker):
    stage = await open_page(broker)
    stage.allowed = ("404",)

    await stage.go(path)

    await stage.sees(title, role="heading")
