"""Pages of other sites in a real browser: whatever they embed or link to consumes no message.

`*.example` resolves to this machine in the browser of the tests. To such a name browsers do not say
which page a request is for; to a loopback address they do.
"""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.support.broker import payloads

EMBEDDED = """
<!doctype html><title>elsewhere</title><a id="link" href="{url}">a link</a>
<img src="{url}&by=img"><iframe src="{url}&by=iframe"></iframe>
<script src="{url}&by=script"></script><link rel="stylesheet" href="{url}&by=style">
<object data="{url}&by=object"></object>
<form id="form" action="{url}"><input name="autoAck" value="true"></form>
<script>
  fetch("{url}&by=fetch", {{mode: "no-cors"}});
  fetch("{url}&by=head", {{mode: "no-cors", method: "HEAD"}});
  navigator.sendBeacon("{url}&by=beacon");
</script>
"""
WAYS = {"img", "iframe", "script", "style", "object", "fetch", "head", "beacon"}
LOOPBACK, NAMED = "127.0.0.1", "broker.example"


@pytest.fixture(scope="module")
def broker(start_broker):
    with start_broker("--workers", "1", allowed_hosts=NAMED) as broker:
        yield broker


@asynccontextmanager
async def serving_page(text):
    """Serve one page on a port of its own, whatever is asked for."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        body = text.encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\n"
        writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
def page(browser, arun):
    async def open_one():
        # Without a locale it sends no language, as no browser of a person does.
        profile = await (await browser.get()).new_context(locale="en-US")
        return profile, await profile.new_page()

    profile, page = arun(open_one())
    yield page
    arun(profile.close())


@asynccontextmanager
async def every_way(page, path):
    """Wait until each way to ask for this path has come to its end; collect the statuses seen."""
    ended, statuses, is_over = set(), set(), asyncio.Event()

    def note_end(request):
        if path in request.url:
            ended.add(request.url.partition("&by=")[2])
            if ended >= WAYS:
                is_over.set()

    def note_status(response):
        if path in response.url:
            statuses.add(response.status)

    page.on("response", note_status)
    page.on("requestfinished", note_end)
    page.on("requestfailed", note_end)  # the browser hides answers that do not fit an image
    yield statuses
    async with asyncio.timeout(30):
        await is_over.wait()


@pytest.mark.parametrize("site", [LOOPBACK, "evil.example"])
@pytest.mark.parametrize("host", [LOOPBACK, NAMED])
async def test_nothing_that_another_page_embeds_takes_a_message(
    page, broker, client, queue, site, host
):
    await client.push_payloads(queue, "kept")
    path = f"/api/v1/pop/queue/{queue}"
    url = f"http://{host}:{broker.port}{path}?autoAck=true"
    async with (
        serving_page(EMBEDDED.format(url=url)) as port,
        every_way(page, path) as statuses,
    ):
        await page.goto(f"http://{site}:{port}/")

    assert statuses == {403}
    assert payloads(await client.pop(queue)) == ["kept"]


@pytest.mark.parametrize("leave", ["#link", "#form"])
@pytest.mark.parametrize("host", [LOOPBACK, NAMED])
async def test_a_link_of_another_page_takes_no_message(page, broker, client, queue, host, leave):
    await client.push_payloads(queue, "kept")
    url = f"http://{host}:{broker.port}/api/v1/pop/queue/{queue}?autoAck=true"
    async with serving_page(EMBEDDED.format(url=url)) as port:
        await page.goto(f"http://evil.example:{port}/")
        async with page.expect_navigation(url=lambda new: str(broker.port) in new) as going:
            await page.locator(leave).evaluate("it => (it.submit || it.click).call(it)")
        answer = await going.value

    assert answer.status == 403
    assert payloads(await client.pop(queue)) == ["kept"]


async def test_another_page_may_link_to_what_only_shows(page, broker):
    url = f"{broker.url}/docs?"
    async with serving_page(EMBEDDED.format(url=url)) as port:
        await page.goto(f"http://evil.example:{port}/")
        async with page.expect_navigation(url="**/docs?") as going:
            await page.click("#link")

        assert (await going.value).status == 200


async def test_a_person_may_poll_by_the_address_bar(page, broker, client, queue):
    await client.push_payloads(queue, "wanted")
    answer = await page.goto(f"{broker.url}/api/v1/pop/queue/{queue}?autoAck=true")

    assert answer.status == 200
    assert payloads((await answer.json())["messages"]) == ["wanted"]


async def test_the_pages_of_the_broker_may_poll(page, broker, client, queue):
    await client.push_payloads(queue, "wanted")
    await page.goto(f"{broker.url}/docs")
    path = f"/api/v1/pop/queue/{queue}?autoAck=true"
    status = await page.evaluate("path => fetch(path).then(answer => answer.status)", path)

    assert status == 200


@pytest.mark.parametrize("path", ["/", "/api/v1/resources/queues", "/api/v1/pop/queue/some"])
async def test_a_name_that_was_rebound_to_the_broker_opens_nothing(page, broker, path):
    answer = await page.goto(f"http://rebound.example:{broker.port}{path}")

    assert answer.status == 403
    assert (await answer.json())["code"] in {"unknown_host", "cross_site"}


async def test_a_name_that_is_allowed_opens_the_broker(page, broker):
    answer = await page.goto(f"http://{NAMED}:{broker.port}/api/v1/resources/queues")

    assert answer.status == 200
