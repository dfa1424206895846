"""All chains or jobs that match a filter, changed over HTTP part by part."""

import pytest

from tests.api.support.job_calls import Asking


@pytest.fixture
def ask(client):
    return Asking(client)


@pytest.fixture
def job(queue):
    """The name of a job that nobody runs."""
    return f"job of {queue}"


async def states(ask, job):
    page = await ask("GET", f"/chains?type={job.replace(' ', '%20')}")
    return [each["state"] for each in page["items"]]


async def test_chains_are_counted_then_cancelled_part_by_part_then_retried(ask, job):
    for _ in range(5):
        await ask.start(job)
    path, asked = "/chains/matching/cancel", {"type": job, "reason": "enough", "limit": 3}

    counted = await ask("POST", path, {**asked, "dryRun": True})
    assert counted["matches"] == {"count": 5, "isExact": True}
    assert (counted["done"], await states(ask, job)) == (0, ["open"] * 5)

    first = await ask("POST", path, asked)
    assert (first["seen"], first["done"], first["refused"]) == (3, 3, {})
    second = await ask("POST", path, {**asked, "after": first["after"]})
    assert (second["seen"], second["after"]) == (2, None)
    assert await states(ask, job) == ["cancelled"] * 5

    again = await ask("POST", "/chains/matching/retry", {"type": job, "state": "cancelled"})
    assert again["done"] == 5
    assert await states(ask, job) == ["open"] * 5


async def test_only_the_chains_named_are_changed(ask, job):
    chosen, other = await ask.start(job), await ask.start(job)

    answer = await ask("POST", "/chains/matching/cancel", {"ids": [chosen]})

    assert answer["done"] == 1
    assert (await ask("GET", f"/chains/{other}"))["state"] == "open"


async def test_what_is_needed_is_refused_and_named(ask, job):
    needed = await ask.start(job)
    await ask.start(f"other {job}", blockers=[needed])
    await ask.start(job)

    answer = await ask("POST", "/chains/matching/delete", {"type": job})

    assert (answer["done"], answer["refused"]) == (1, {"needed": 1})
    assert answer["examples"] == [{"id": needed, "reason": "needed"}]


async def test_scheduled_jobs_run_now(ask, job):
    chain_id = await ask.start(job, delaySeconds=600)

    answer = await ask("POST", "/jobs/matching/trigger", {"type": job})

    assert answer["done"] == 1
    assert (await ask("GET", f"/jobs/{chain_id}"))["state"] == "ready"


async def test_chains_are_chosen_by_key_parent_and_time(ask, job):
    chain_id = await ask.start(job, key=f"key of {job}")
    shown = await ask("GET", f"/chains/{chain_id}")
    started, path = shown["createdAt"], "/chains/matching/cancel"

    for missing in ({"to": started}, {"parentJobId": chain_id}, {"key": "another"}):
        assert (await ask("POST", path, {"type": job, **missing}))["seen"] == 0
    found = await ask("POST", path, {"key": f"key of {job}", "from": started})

    assert found["done"] == 1


@pytest.mark.parametrize(
    ("path", "members", "saying"),
    [
        ("/chains/matching/cancel", {}, "filter is empty"),
        ("/chains/matching/delete", {"dryRun": True}, "filter is empty"),
        ("/jobs/matching/trigger", {}, "filter is empty"),
        ("/chains/matching/cancel", {"state": "completed"}, "cannot be cancelled"),
        ("/chains/matching/retry", {"state": "open"}, "cannot be retried"),
        ("/chains/matching/retry", {"state": "lost"}, "state"),
        ("/chains/matching/retry", {"type": "a", "limit": 0}, "limit"),
        ("/chains/matching/delete", {"type": "a", "limit": 10_001}, "limit"),
        ("/chains/matching/delete", {"from": "2026-01-01T00:00:00"}, "from"),
    ],
)
async def test_a_filter_that_is_none_is_refused(ask, path, members, saying):
    refusal = await ask("POST", path, members, status=400)

    assert saying in refusal["error"]


async def test_everything_is_meant_when_it_is_said(ask, job):
    await ask.start(job, delaySeconds=600)

    answer = await ask("POST", "/jobs/matching/trigger", {"all": True, "dryRun": True})

    assert answer["matches"]["count"] >= 1
