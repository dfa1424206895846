"""Jobs over HTTP: listed, let run, held up; and who runs them."""

from contextlib import AsyncExitStack
from urllib.parse import quote
from uuid import uuid4

import pytest

from skep.jobs import Ctx, JobTypes, Retry
from tests.api.support.job_calls import Asking, start_worker

forge = JobTypes("forge")


@forge.job("break", retry=Retry(max_attempts=2, initial_s=0.0))
async def break_down(ctx: Ctx[str, str]) -> str:
    raise RuntimeError(ctx.input)


@pytest.fixture
def ask(client):
    return Asking(client)


@pytest.fixture
def job(queue):
    """The name of a job that nobody runs."""
    return f"job of {queue}"


async def test_a_job_is_found_by_type_state_and_chain(ask, job):
    chain_id = await ask.start(job, 7, priority=3, limitKey="k")
    for filters in ("", "&state=ready", f"&chainId={chain_id}"):
        (found,) = (await ask("GET", f"/jobs?type={quote(job)}{filters}"))["items"]
        assert found["id"] == found["chainId"] == chain_id
    assert (found["priority"], found["limitKey"], found["input"]) == (3, "k", 7)
    assert (await ask("GET", f"/jobs?type={quote(job)}&state=running"))["items"] == []
    assert (await ask("GET", f"/jobs/{chain_id}"))["state"] == "ready"


@pytest.mark.parametrize("listed", ["jobs", "chains"])
async def test_lists_have_bounds_of_time(ask, job, listed):
    first = (await ask("GET", f"/chains/{await ask.start(job)}"))["createdAt"]
    second = await ask.start(job)
    moment = (await ask("GET", f"/chains/{second}"))["createdAt"]

    async def found(*bounds):
        query = "&".join((f"type={quote(job)}", *bounds))
        return [each["createdAt"] for each in (await ask("GET", f"/{listed}?{query}"))["items"]]

    for since, until in (("from", "to"), ("createdFrom", "createdTo")):
        assert await found(f"{since}={quote(moment)}") == [moment]
        assert await found(f"{until}={quote(moment)}") == [first]
        assert await found(f"{since}={moment.removesuffix('Z')}") == [moment], "a UTC time"
        assert await found(f"{since}={quote(first)}", f"{until}={quote(moment)}") == [first]
    await ask("GET", f"/{listed}?from=yesterday", status=400)


async def test_attempts_show_their_errors(ask, broker):
    async with AsyncExitStack() as stack:
        await start_worker(stack, broker, forge)
        chain_id = await ask.start("break", "too hot", maxAttempts=2)
        assert (await ask.result(chain_id))["state"] == "failed"

    attempts = (await ask("GET", f"/jobs/{chain_id}/attempts"))["attempts"]
    assert [each["outcome"] for each in attempts] == ["failed", "failed"]
    assert all("RuntimeError: too hot" in each["error"] for each in attempts)
    for listed in ("jobs", "chains"):
        assert "RuntimeError: too hot" in (await ask("GET", f"/{listed}/{chain_id}"))["lastError"]
    later = (await ask("GET", f"/jobs/{chain_id}/attempts?after=1"))["attempts"]
    assert [each["attempt"] for each in later] == [2]


async def test_a_scheduled_job_is_let_run(ask, job):
    chain_id = await ask.start(job, delaySeconds=600)
    assert (await ask("GET", f"/jobs/{chain_id}"))["state"] == "scheduled"

    assert (await ask("POST", f"/jobs/{chain_id}/trigger"))["state"] == "ready"


async def test_a_job_that_has_ended_cannot_be_triggered(ask, job):
    chain_id = await ask.start(job)
    await ask("POST", f"/chains/{chain_id}/cancel")

    refusal = await ask("POST", f"/jobs/{chain_id}/trigger", status=409)

    assert refusal["code"] == "not_triggerable"


async def test_a_paused_type_does_not_start_jobs_until_it_is_resumed(ask, broker, queue):
    types = JobTypes("pausable")
    name = f"pausable/{queue}"

    @types.job(name)
    async def pausable(ctx: Ctx[int, int]) -> int:
        return ctx.input

    chain_id = await ask.start(name, 7)
    await ask("POST", f"/jobs/types/{quote(name, safe='')}/pause")
    async with AsyncExitStack() as stack:
        await start_worker(stack, broker, types)
        assert (await ask.result(chain_id, timeout_s=1.5))["state"] == "open"
        (shown,) = [each for each in await all_types(ask) if each["name"] == name]
        assert shown["isPaused"]

        await ask("POST", f"/jobs/types/{quote(name, safe='')}/resume")

        assert (await ask.result(chain_id))["output"] == 7


async def all_types(ask):
    found, after = [], ""
    while after is not None:
        page = await ask("GET", f"/jobs/types?limit=3{after and f'&after={quote(after)}'}")
        found += page["items"]
        after = page["after"]
    assert [each["name"] for each in found] == sorted({each["name"] for each in found})
    return found


async def test_open_jobs_are_counted(ask, job):
    await ask.start(job)
    await ask.start(job, delaySeconds=600)

    counted = await counts_of(ask, job)
    while counted is None:  # the answer may be two seconds old
        counted = await counts_of(ask, job)

    assert (counted["ready"], counted["scheduled"], counted["running"]) == (1, 1, 0)
    assert counted["oldestReadyS"] >= 0


async def counts_of(ask, job):
    types = (await ask("GET", "/jobs/counts"))["types"]
    return next((each for each in types if each["type"] == job), None)


async def test_workers_show_what_they_run(ask, broker, queue):
    async with AsyncExitStack() as stack:
        worker = await start_worker(stack, broker, forge, name=f"worker of {queue}")

        workers = (await ask("GET", "/jobs/workers?limit=1000"))["items"]

        (shown,) = [each for each in workers if each["name"] == f"worker of {queue}"]
        assert shown["id"] == str(worker.worker_id)
        assert (shown["running"], shown["isLate"]) == (0, False)
    workers = (await ask("GET", "/jobs/workers?limit=1000"))["items"]
    assert str(worker.worker_id) not in [each["id"] for each in workers]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/jobs/{id}"),
        ("GET", "/jobs/{id}/attempts"),
        ("GET", "/jobs/{id}/blockers"),
        ("POST", "/jobs/{id}/trigger"),
    ],
)
async def test_a_job_that_does_not_exist_is_404(ask, method, path):
    refusal = await ask(method, path.replace("{id}", str(uuid4())), status=404)

    assert refusal["code"] == "job_not_found"


@pytest.mark.parametrize("word", ["pause", "resume"])
async def test_a_type_that_does_not_exist_is_404(ask, word):
    refusal = await ask("POST", f"/jobs/types/nobody/{word}", status=404)

    assert refusal["code"] == "no_such_job_type"


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "after=x", "state=odd", "chainId=x"])
async def test_a_list_that_makes_no_sense_is_400(ask, query):
    await ask("GET", f"/jobs?{query}", status=400)
