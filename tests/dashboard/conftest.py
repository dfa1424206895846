"""A broker with a built dashboard, and a real Chromium that looks at it.

Where there is neither a browser nor Node to fetch one these tests are left out; CI sets
`REQUIRE_BROWSER`, and then they fail instead.
"""

import asyncio
import json
import os
from contextlib import AsyncExitStack

import pytest

from tests.dashboard.support.browser import SITE, OpenBrowser, build_site, find_browser, has_node
from tests.dashboard.support.scenery import chain_page, fill, message_page
from tests.dashboard.support.stage import open_stage


def leave_out(reason):
    if os.environ.get("REQUIRE_BROWSER"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def built_site():
    if has_node():
        build_site()
    elif not (SITE / "index.html").exists():
        leave_out("there is no Node to build the dashboard with")
    return SITE


@pytest.fixture(scope="session")
def browser_path():
    return find_browser() or leave_out("there is no Chromium, and no Node to fetch one with")


@pytest.fixture(scope="package")
def broker(start_broker, built_site):
    """A broker of one worker that serves the dashboard."""
    with start_broker("--workers", "1") as broker:
        yield broker


@pytest.fixture(scope="package")
def shown_broker(start_broker, built_site):
    """A broker in the middle of a bad afternoon, once `filled` is asked for."""
    with start_broker("--workers", "1", metrics_interval_s=1) as broker:
        yield broker


@pytest.fixture
def filled(shown_broker, arun):
    """The addresses of a message and a chain, in a broker that has something to show."""

    async def prepare():
        async with shown_broker.connect() as client:
            answer = await client.call("GET", "/api/v1/resources/queues")
            if not json.loads(answer.body)["total"]:
                await fill(shown_broker, client)
            return {
                "message": await message_page(client, "orders"),
                "chain": await chain_page(client, "weld"),
                "failed chain": await chain_page(client, "assemble"),
            }

    return arun(prepare())


@pytest.fixture(scope="package")
def arun():
    """Run a coroutine to its end. Tests here share a loop, because the browser lives on it."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(scope="package")
def browser(browser_path, arun):
    """One browser for all tests; each has a profile of its own there."""
    browser = OpenBrowser(browser_path)
    yield browser
    arun(browser.close())


@pytest.fixture
def open_page(browser, arun):
    """Open pages of a broker in the browser; no page may log an error to its console."""
    stack = AsyncExitStack()
    stages = []

    async def open_page(broker, path="/", **options):
        stage = await open_stage(stack, await browser.get(), broker, path, **options)
        stages.append(stage)
        return stage

    yield open_page
    arun(stack.aclose())
    assert [stage.complaints for stage in stages if stage.complaints] == []
