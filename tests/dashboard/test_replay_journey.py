"""A replay as people order and watch it in the browser.

The worker is a stand-in, so that no page waits for Spark;
tests/spark/transfer/test_replay_worker.py has the real one behind the same routes.
"""

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
from playwright.async_api import expect

from skep.jobs import Ctx, JobTypes
from skep.jobs.service.replays import REPLAY_JOB, ReplayOrder, ReplayResult
from tests.api.support.job_calls import Asking, start_worker
from tests.dashboard.support.workshop import doors

NEVER_TAKEN = "update skep.open_job set due_at = due_at - interval '1 minute' where job_id = $1"

stand_in = JobTypes("a worker without Spark")


@stand_in.job(REPLAY_JOB)
async def replay(ctx: Ctx[ReplayOrder, ReplayResult]) -> ReplayResult:
    ctx.report(0.25, "1 of 4 tasks")
    await doors.of(f"replay {ctx.input.queue}").wait()
    return ReplayResult(
        messages=1200, duplicates=0, rejected=0, is_repeated=False, committed_at=datetime.now(UTC)
    )


@pytest.fixture
def ask(client):
    return Asking(client)


@pytest.fixture
def span():
    """A day that ended a minute ago, as addresses and orders have it."""
    now = datetime.now(UTC).replace(microsecond=0)
    times = (now - timedelta(days=1), now - timedelta(minutes=1))
    return dict(zip(("from", "to"), (time.isoformat() for time in times), strict=True))


async def newest(ask):
    return (await ask("GET", "/replays?limit=1"))["items"][0]


async def test_a_replay_is_ordered_and_watched_until_it_has_ended(
    open_page, broker, client, ask, queue, span
):
    await client.push_payloads(queue, 1)
    stage = await open_page(broker, f"/pipelines?{urlencode({'tab': 'archive', **span})}")
    button = stage.page.get_by_role("button", name="Start the replay")
    await stage.fill("Queue", queue)
    await expect(button).to_be_disabled()
    await stage.fill("Into queue", f"{queue}-again")
    await stage.page.wait_for_url(f"**into={queue}-again*")

    await button.click()
    dialog = stage.page.get_by_role("dialog")
    await expect(dialog).to_contain_text(f"put into {queue}-again once more")
    await stage.click("Replay")
    await stage.row("Replays", f"{queue}-again", "ready")

    async with AsyncExitStack() as stack:
        await start_worker(stack, broker, stand_in, concurrency=100)
        await stage.row("Replays", f"{queue}-again", "running", "1 of 4 tasks")
        doors.open(f"replay {queue}")
        await stage.row("Replays", f"{queue}-again", "completed", "1,200 messages")
    assert (await newest(ask))["order"]["from"] == span["from"].replace("+00:00", "Z")


async def test_a_replay_that_nobody_runs_says_what_to_start_and_is_cancelled(
    open_page, broker, client, ask, queue, span
):
    await client.push_payloads(queue, 1)
    order = {"queue": queue, "into": f"{queue}-again", **span}
    replay_id = (await ask("POST", "/replays", order, status=202))["id"]
    async with broker.sql() as sql:
        await sql.execute(NEVER_TAKEN, replay_id)
    stage = await open_page(broker, "/pipelines?tab=archive")
    row = await stage.row("Replays", queue, "skep worker skep.replay_worker:app")

    await row.get_by_role("button", name="Cancel").click()

    await stage.row("Replays", queue, "cancelled in the dashboard")
    assert (await newest(ask))["state"] == "cancelled"


async def test_an_order_that_is_refused_keeps_the_question_open(open_page, broker, queue, span):
    form = {"tab": "archive", "queue": f"{queue}-missing", "into": queue, **span}
    stage = await open_page(broker, f"/pipelines?{urlencode(form)}")
    stage.allowed = ("404",)

    await stage.click("Start the replay")
    await stage.click("Replay")

    await stage.sees(f"there is no queue '{queue}-missing'")
    await expect(stage.page.get_by_role("dialog")).to_be_visible()
