"""Schedules over HTTP: put, shown, listed, deleted; and run by the broker that leads."""

import asyncio

import pytest

from tests.api.support.job_calls import Asking

EVERY_SECOND = "* * * * * *"


@pytest.fixture
def ask(client):
    return Asking(client)


@pytest.fixture
def name(queue):
    return f"schedule of {queue}"


def path(name):
    return f"/schedules/{name.replace(' ', '%20')}"


async def test_a_schedule_is_put_shown_changed_and_deleted(ask, name):
    body = {"type": "sweep", "cron": "0 3 * * *", "timezone": "Europe/Rome", "input": {"n": 1}}

    made = await ask("PUT", path(name), body)
    assert made["nextAt"].endswith("Z")
    assert (made["input"], made["missed"], made["isEnabled"]) == ({"n": 1}, "once", True)
    assert await ask("GET", path(name)) | {"now": made["now"]} == made

    changed = await ask("PUT", path(name), {**body, "isEnabled": False, "missed": "all"})
    assert (changed["isEnabled"], changed["missed"]) == (False, "all")

    assert await ask("DELETE", path(name)) == {"deleted": name}
    await ask("GET", path(name), status=404)


async def test_a_schedule_is_paused_and_resumed(ask, name):
    await ask("PUT", path(name), {"type": "sweep", "cron": "0 3 * * *"})

    paused = await ask("POST", f"{path(name)}/pause")
    assert (paused["isEnabled"], paused["isPaused"]) == (False, True)
    resumed = await ask("POST", f"{path(name)}/resume")
    assert (resumed["isEnabled"], resumed["isPaused"], resumed["owner"]) == (True, False, None)

    await ask("DELETE", path(name))
    for action in ("pause", "resume"):
        await ask("POST", f"{path(name)}/{action}", status=404)


async def test_schedules_are_listed_by_name(ask, name):
    for suffix in ("a", "b", "c"):
        body = {"type": "sweep", "cron": "0 3 * * *", "isEnabled": False}
        await ask("PUT", path(f"{name} {suffix}"), body)

    page = await ask("GET", f"/schedules?limit=2&after={name.replace(' ', '%20')}")

    assert [each["name"] for each in page["items"]] == [f"{name} a", f"{name} b"]
    rest = await ask("GET", f"/schedules?limit=1&after={page['after'].replace(' ', '%20')}")
    assert rest["items"][0]["name"] == f"{name} c"


async def test_without_any_worker_a_broker_starts_what_is_due(ask, broker, name):
    job, is_started = f"job of {name}", asyncio.Event()

    def hear(_connection, _pid, _channel, payload):
        if job in payload.split("\n"):
            is_started.set()

    async with broker.sql() as sql:
        await sql.add_listener("skep_job_ready", hear)
        await ask("PUT", path(name), {"type": job, "cron": EVERY_SECOND})
        await is_started.wait()
    await ask("DELETE", path(name))

    chains = (await ask("GET", f"/chains?type={job.replace(' ', '%20')}"))["items"]
    assert chains[-1]["lastJobState"] == "ready"


async def test_a_schedule_that_does_not_exist_is_404(ask):
    for method in ("GET", "DELETE"):
        refusal = await ask(method, "/schedules/nobody", status=404)
        assert refusal["code"] == "schedule_not_found"


@pytest.mark.parametrize(
    "members",
    [
        {"cron": "0 3 * * *"},
        {"type": "x"},
        {"type": "x", "cron": "at dawn"},
        {"type": "x", "cron": "0 0 30 2 *"},
        {"type": "x", "cron": "0 3 * * *", "timezone": "Mars/Olympus"},
        {"type": "x", "cron": "0 3 * * *", "missed": "maybe"},
    ],
)
async def test_a_schedule_that_makes_no_sense_is_400(ask, name, members):
    await ask("PUT", path(name), members, status=400)
