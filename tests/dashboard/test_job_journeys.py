"""Chains, schedules and pipelines as people watch and steer them in the browser."""

import re
from urllib.parse import quote

import pytest
from playwright.async_api import expect

from tests.api.support.job_calls import Asking
from tests.dashboard.support.lake import archive, run_pipeline
from tests.dashboard.support.workshop import build, doors, fail_an_order, working


@pytest.fixture
def ask(client):
    return Asking(client)


async def drawing_says(stage, *words):
    """Wait until the drawing of the chain, as it is spoken, holds all of these."""
    drawing = stage.page.get_by_role("region", name="Steps of the chain").get_by_role("group")
    for word in words:
        await expect(drawing.first).to_have_attribute("aria-label", word)


async def test_a_chain_is_watched_until_it_finishes(open_page, broker, client, queue):
    async with working(broker, client) as ask:
        chain_id = await build(ask, queue)
        stage = await open_page(broker, f"/chains/{chain_id}")
        await drawing_says(stage, "weld: blocked (waits for fetch wheels, open)")

        doors.open(f"wheels {queue}")
        await drawing_says(stage, "weld: running (waits for fetch wheels, completed)")
        doors.open(f"weld {queue}")
        await drawing_says(
            stage, "weld: continued (waits for fetch wheels, completed), then paint: running"
        )
        doors.open(f"paint {queue}")
        await drawing_says(
            stage, "weld: continued (waits for fetch wheels, completed), then paint: completed"
        )
        await stage.sees(f'"a {queue} bicycle"')


async def test_a_blocker_is_a_link_to_its_chain(open_page, broker, ask, queue):
    chain_id = await build(ask, queue)
    stage = await open_page(broker, f"/chains/{chain_id}")

    await stage.click("fetch wheels", role="link", exact=False)

    await drawing_says(stage, "fetch wheels: ready. Awaited by weld")
    await stage.click("weld", role="link", exact=False)
    await stage.page.wait_for_url(f"**/chains/{chain_id}")


async def test_a_failed_chain_shows_its_attempts_and_is_retried(open_page, broker, client, queue):
    async with working(broker, client) as ask:
        chain_id = await ask.start("polish", queue, maxAttempts=2)
        assert (await ask.result(chain_id))["state"] == "failed"
        stage = await open_page(broker, f"/chains/{chain_id}")
        await stage.row("Attempts of polish", "1", f"out of wax for {queue}")
        await stage.row("Attempts of polish", "2", f"out of wax for {queue}")

        doors.open(f"polish {queue}")
        await stage.click("Retry")
        await stage.click("Retry it")

        await drawing_says(stage, "polish: completed")


async def test_what_runs_at_the_same_time_is_drawn_below_each_other(
    open_page, broker, client, queue
):
    async with working(broker, client) as ask:
        chain_id = await fail_an_order(ask, queue)
    stage = await open_page(broker, f"/chains/{chain_id}")
    drawing = stage.page.get_by_role("region", name="Steps of the chain")

    async def spot(job):
        return await drawing.locator("a", has_text=job).locator("rect").bounding_box()

    wheels, paint, bell, whole = [await spot(job) for job in ("wheels", "paint", "polish", "ass")]
    assert wheels["x"] == paint["x"] == bell["x"] < whole["x"]
    assert len({wheels["y"], paint["y"], bell["y"]}) == 3
    timeline = stage.page.get_by_role("region", name="Timeline")
    bars = timeline.get_by_role("listitem").filter(has_text="polish").get_by_role("img")
    await expect(bars).to_have_attribute(
        "aria-label", re.compile("attempt 1: failed, .*; attempt 2: failed, ")
    )


async def test_many_chains_are_retried_and_cancelled_at_once(open_page, broker, client, queue):
    async with working(broker, client) as ask:
        chains = [
            await ask.start("polish", f"{queue} {n}", maxAttempts=1, key=f"{queue}-{n}")
            for n in range(2)
        ]
        for chain_id in chains:
            assert (await ask.result(chain_id))["state"] == "failed"
        stage = await open_page(broker, "/chains?type=polish")
        await (
            stage.page.get_by_role("navigation", name="Chains by state")
            .get_by_role("link", name="failed")
            .click()
        )
        for chain_id in chains:
            doors.open(f"polish {queue} {chains.index(chain_id)}")
            await stage.page.get_by_label(f"Choose {chain_id}").check()
        await stage.click("Retry the chosen (2)")
        await stage.sees("2 failed or cancelled chains are among the chosen.")
        await stage.click("Retry 2")
        await stage.sees("Retried 2 chains.")
        for chain_id in chains:
            assert (await ask.result(chain_id))["state"] == "completed"

    name = f"nobody runs {queue}"
    waiting = [await ask.start(name) for _ in range(3)]
    await stage.go(f"/chains?type={quote(name)}")
    await stage.click("Cancel all that match")
    await stage.click("Cancel 3")
    await stage.sees("Cancelled 3 chains.")
    assert (await ask("GET", f"/chains/{waiting[0]}"))["state"] == "cancelled"


async def test_an_open_chain_is_cancelled_with_those_that_wait(open_page, broker, ask, queue):
    first = await ask.start(f"nobody runs {queue}")
    second = await ask.start(f"nobody runs {queue}", blockers=[first])
    stage = await open_page(broker, f"/chains/{first}")

    await stage.click("Cancel the chain")
    await stage.page.get_by_label("Also cancel the chains that wait for it").check()
    await stage.click("Cancel it")

    await stage.sees("cancelled in the dashboard")
    assert (await ask("GET", f"/chains/{second}"))["state"] == "cancelled"


async def test_a_scheduled_job_is_let_run_now(open_page, broker, ask, queue):
    chain_id = await ask.start(f"nobody runs {queue}", delaySeconds=3600)
    stage = await open_page(broker, f"/chains/{chain_id}")

    await stage.click("Run now")

    await drawing_says(stage, f"nobody runs {queue}: ready")


async def test_chains_are_found_by_key(open_page, broker, ask, queue):
    wanted = await ask.start(f"nobody runs {queue}", key=f"key-{queue}")
    await ask.start(f"nobody runs {queue}", key=f"other-{queue}")
    stage = await open_page(broker, "/chains")

    await stage.fill("Key", f"key-{queue}")
    await stage.page.wait_for_url(f"**/chains?key=key-{queue}")

    table = stage.page.get_by_role("table", name="Chains")
    await expect(table.get_by_role("link")).to_have_text([f"key-{queue}"])
    await expect(table.get_by_role("link")).to_have_attribute("href", f"/chains/{wanted}")


async def test_a_schedule_shows_its_next_run_and_is_paused(open_page, broker, ask, queue):
    await ask("PUT", f"/schedules/{queue}", {"type": "ring", "cron": "0 6 * * *"})
    stage = await open_page(broker, "/chains?tab=schedules")
    row = await stage.row("Schedules", queue, "0 6 * * * UTC", "in ")

    await row.get_by_role("button", name="Pause").click()

    await stage.row("Schedules", queue, "Resume")
    assert (await ask("GET", f"/schedules/{queue}"))["isPaused"]


async def test_a_schedule_that_its_application_disables_is_not_shown_as_paused(
    open_page, broker, ask, queue
):
    await ask("PUT", f"/schedules/{queue}", {"type": "ring", "cron": "0 6 * * *"})
    async with broker.sql() as sql:
        await sql.execute("update skep.job_schedule set is_enabled = false where name = $1", queue)

    stage = await open_page(broker, "/chains?tab=schedules")

    row = await stage.row("Schedules", queue, "disabled")
    await expect(row.get_by_role("button")).to_have_text(["Delete"])


async def test_a_type_shows_what_is_open_and_is_held_up(open_page, broker, ask, queue):
    await ask.start(f"0 {queue}")
    await ask.start(f"0 {queue}", delaySeconds=600)
    stage = await open_page(broker, "/chains?tab=types")
    await stage.row("Job types", f"0 {queue}")

    await stage.click(f"Pause 0 {queue}")

    await stage.row("Job types", f"0 {queue}", "paused")
    await stage.sees(f"Resume 0 {queue}", role="button")


async def test_a_pipeline_shows_its_batches_and_is_stopped(open_page, broker, client, queue):
    await run_pipeline(broker, f"pipe {queue}")
    stage = await open_page(broker, "/pipelines")
    row = await stage.row("Pipelines", f"pipe {queue}", "running", "1,200")

    await row.get_by_role("link").click()
    await stage.sees("Durations of the last batches")
    await stage.click("Stop")
    await stage.click("Stop it")

    await stage.sees("stopping")


async def test_a_replay_is_spelled_from_the_form(open_page, broker, client, queue):
    await client.push_payloads(queue, 1)
    await archive(broker, client, queue)
    stage = await open_page(broker, "/pipelines?tab=archive")

    await (await stage.row("Archive by queue", queue)).get_by_role("link", name="Replay").click()
    await stage.fill("Into queue", "it's again")
    await stage.page.get_by_label("Only count").check()

    command = stage.page.get_by_label("Replay command")
    await expect(command).to_contain_text("--into 'it'\\''s again'")
    await expect(command).to_contain_text(f"skep replay --queue {queue}")
    await expect(command).to_contain_text("--dry-run")
    await expect(command).not_to_contain_text("START")
