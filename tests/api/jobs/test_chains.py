"""Chains over HTTP: started by name, waited for, settled from outside, cancelled, deleted."""

import asyncio
from contextlib import AsyncExitStack
from uuid import uuid4

import pytest

from skep.jobs import Continue, Ctx, JobTypes
from tests.api.support.job_calls import Asking, start_worker

kitchen = JobTypes("kitchen")


@kitchen.job("serve")
async def serve(ctx: Ctx[str, str]) -> str:
    return f"{ctx.input} served"


@kitchen.job("cook")
async def cook(ctx: Ctx[str, str]) -> str | Continue[str]:
    return Continue(serve, f"{ctx.input} soup")


@pytest.fixture
def ask(client):
    return Asking(client)


@pytest.fixture
def job(queue):
    """The name of a job that nobody runs."""
    return f"job of {queue}"


async def test_a_chain_started_by_name_is_run_by_a_worker_and_waited_for(ask, broker):
    async with AsyncExitStack() as stack:
        await start_worker(stack, broker, kitchen)

        chain_id = await ask.start("cook", "pea")

        assert await ask.result(chain_id) == {
            "state": "completed",
            "output": "pea soup served",
            "error": None,
        }


async def test_a_chain_that_has_not_ended_in_time_is_open(ask, job):
    chain_id = await ask.start(job)

    assert (await ask.result(chain_id, timeout_s=0))["state"] == "open"


async def test_who_waits_is_answered_when_the_chain_ends(ask, broker, job):
    chain_id = await ask.start(job)
    waiting = asyncio.ensure_future(ask.result(chain_id))
    async with broker.connect() as other:
        await Asking(other)("POST", f"/chains/{chain_id}/complete", {"output": [1, {"a": None}]})

    assert await waiting == {"state": "completed", "output": [1, {"a": None}], "error": None}


async def test_a_chain_shows_where_it_is(ask, job):
    chain_id = await ask.start(job, {"n": 1}, key=f"key of {job}", delaySeconds=600)

    shown = await ask("GET", f"/chains/{chain_id}")

    assert shown["type"] == shown["lastJobType"] == job
    assert (shown["state"], shown["lastJobState"]) == ("open", "scheduled")
    assert shown["input"] == {"n": 1}
    assert shown["key"] == f"key of {job}"
    assert shown["createdAt"].endswith("Z")


async def test_chains_start_all_or_none(ask, job):
    taken = await ask.start(job)
    asked = {"chains": [{"type": job}, {"type": job, "id": taken}]}

    refusal = await ask("POST", "/chains", asked, status=409)

    assert refusal["code"] == "chain_exists"
    assert len((await ask("GET", f"/chains?type={quoted(job)}"))["items"]) == 1


def quoted(text):
    return text.replace(" ", "%20")


async def test_a_held_key_returns_the_chain_that_holds_it(ask, job):
    first = await ask.start(job, key="k")

    answer = await ask("POST", "/chains", {"chains": [{"type": job, "key": "k"}]}, status=201)

    assert answer["chains"] == [{"id": first, "isDuplicate": True}]


async def test_a_job_waits_for_chains_by_their_ids(ask, job):
    blocker = await ask.start(job)
    chain_id = await ask.start(job, blockers=[blocker])
    assert (await ask("GET", f"/chains/{chain_id}"))["lastJobState"] == "blocked"

    await ask("POST", f"/chains/{blocker}/complete", {"output": 7})

    assert (await ask("GET", f"/chains/{chain_id}"))["lastJobState"] == "ready"
    (waited,) = (await ask("GET", f"/jobs/{chain_id}/blockers"))["blockers"]
    assert waited | {"chain": blocker, "state": "completed", "output": 7} == waited
    (waiting,) = (await ask("GET", f"/jobs?blockedBy={blocker}"))["items"]
    assert waiting["id"] == chain_id


async def test_a_chain_whose_blocker_failed_says_so_and_what_it_does_about_it(ask, job):
    blocker = await ask.start(job)
    policies = ("wait", "fail", "ignore")
    chains = [await ask.start(job, blockers=[blocker], onBlockerFailure=each) for each in policies]

    await ask("POST", f"/chains/{blocker}/fail", {"error": "broken"})

    shown = [await ask("GET", f"/chains/{each}") for each in chains]
    assert [each["state"] for each in shown] == ["open", "failed", "open"]
    assert [each["lastJobState"] for each in shown] == ["blocked", "failed", "ready"]
    assert [each["failedBlockers"] for each in shown] == [1, None, 1]
    (waiting,) = (await ask("GET", f"/jobs?blockedBy={blocker}&state=blocked"))["items"]
    assert (waiting["onBlockerFailure"], waiting["failedBlockers"]) == ("wait", 1)
    (waited,) = (await ask("GET", f"/jobs/{chains[0]}/blockers"))["blockers"]
    assert (waited["state"], waited["onFailure"]) == ("failed", "wait")


async def test_the_context_of_a_trace_is_kept(ask, job):
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    asked = {"chains": [{"type": job}]}

    answer = await ask("POST", "/chains", asked, status=201, headers=f"traceparent: {trace}\r\n")

    shown = await ask("GET", f"/chains/{answer['chains'][0]['id']}")
    assert shown["trace"] == trace


async def test_pages_go_from_the_newest_to_the_oldest_and_back(ask, job):
    ids = [await ask.start(job, n) for n in range(5)]
    path = f"/chains?type={quoted(job)}&limit=2"

    seen, after = [], ""
    while after is not None:
        page = await ask("GET", f"{path}{after and f'&after={after}'}")
        seen += [each["id"] for each in page["items"]]
        after = page["after"]

    assert seen == ids[::-1]
    oldest = await ask("GET", f"{path}&order=oldest")
    assert [each["id"] for each in oldest["items"]] == ids[:2]


async def test_chains_are_found_by_state_key_parent_and_time(ask, job):
    parent = str(uuid4())
    chain_id = await ask.start(job, key=f"the key of {job}", parentJobId=parent)
    await ask.start(job)
    for filters, found in {
        f"type={quoted(job)}&state=failed": 0,
        f"key={quoted(f'the key of {job}')}": 1,
        f"parentJobId={parent}": 1,
        f"key={quoted(f'the key of {job}')}&from=2100-01-01T00:00:00Z": 0,
        f"key={quoted(f'the key of {job}')}&to=2100-01-01T00:00:00Z": 1,
    }.items():
        items = (await ask("GET", f"/chains?{filters}"))["items"]
        assert [each["id"] for each in items] == [chain_id] * found, filters


class TestSettlingFromOutside:
    async def test_a_job_continues(self, ask, job):
        chain_id = await ask.start(job)
        step = {"type": f"{job} again", "input": 2, "delaySeconds": 60}

        shown = await ask("POST", f"/chains/{chain_id}/continue", {"next": step})

        assert (shown["lastJobType"], shown["lastJobState"]) == (f"{job} again", "scheduled")
        jobs = (await ask("GET", f"/chains/{chain_id}/jobs"))["items"]
        assert [(each["position"], each["state"]) for each in jobs] == [
            (0, "continued"),
            (1, "scheduled"),
        ]

    async def test_a_job_fails_and_is_retried(self, ask, job):
        chain_id = await ask.start(job)
        failed = await ask("POST", f"/chains/{chain_id}/fail", {"error": "no flour"})
        assert (failed["state"], failed["error"]) == ("failed", "no flour")

        retried = await ask("POST", f"/chains/{chain_id}/retry")

        assert (retried["state"], retried["lastJobState"]) == ("open", "ready")

    async def test_another_job_than_expected_is_left_alone(self, ask, job):
        chain_id = await ask.start(job)

        refusal = await ask(
            "POST", f"/chains/{chain_id}/complete", {"output": 1, "jobType": "other"}, status=400
        )

        assert refusal["code"] == "job_type_mismatch"
        assert (await ask("GET", f"/chains/{chain_id}"))["state"] == "open"

    async def test_what_has_ended_cannot_be_settled(self, ask, job):
        chain_id = await ask.start(job)
        await ask("POST", f"/chains/{chain_id}/complete", {"output": 1})

        for path, body in (
            ("complete", {"output": 2}),
            ("fail", {"error": "late"}),
            ("continue", {"next": {"type": job}}),
        ):
            refusal = await ask("POST", f"/chains/{chain_id}/{path}", body, status=409)
            assert refusal["code"] == "chain_closed"

    async def test_a_chain_cannot_go_on_waiting_for_itself(self, ask, job):
        chain_id = await ask.start(job)
        step = {"type": job, "blockers": [chain_id]}

        refusal = await ask("POST", f"/chains/{chain_id}/continue", {"next": step}, status=400)

        assert refusal["code"] == "self_blocked"


class TestEnding:
    async def test_cancelling_tells_the_state_of_each(self, ask, job):
        done, waiting = await ask.start(job), await ask.start(job)
        await ask("POST", f"/chains/{done}/complete", {"output": 1})

        answer = await ask("POST", "/chains/cancel", {"ids": [done, waiting], "reason": "enough"})

        assert answer["states"] == {done: "completed", waiting: "cancelled"}
        assert (await ask("GET", f"/chains/{waiting}"))["error"] == "enough"

    async def test_cancelling_takes_those_that_wait_along_if_asked_to(self, ask, job):
        blocker = await ask.start(job)
        waiting = await ask.start(job, blockers=[blocker])

        answer = await ask("POST", f"/chains/{blocker}/cancel", {"cascade": True})

        assert answer["states"] == {blocker: "cancelled", waiting: "cancelled"}

    async def test_a_chain_that_is_needed_is_not_deleted(self, ask, job):
        blocker = await ask.start(job)
        waiting = await ask.start(job, blockers=[blocker])

        refusal = await ask("DELETE", f"/chains/{blocker}", status=409)
        assert refusal["code"] == "chain_referenced"

        answer = await ask("DELETE", f"/chains/{waiting}?cascade=true")
        assert sorted(answer["deleted"]) == sorted([blocker, waiting])
        await ask("GET", f"/chains/{blocker}", status=404)

    async def test_a_blocker_is_deleted_with_what_waits_for_it_if_asked_to(self, ask, job):
        blocker = await ask.start(job)
        waiting = await ask.start(job, blockers=[blocker])

        answer = await ask("DELETE", f"/chains/{blocker}?cascade=true")

        assert sorted(answer["deleted"]) == sorted([blocker, waiting])

    async def test_only_what_failed_is_retried(self, ask, job):
        chain_id = await ask.start(job)

        refusal = await ask("POST", f"/chains/{chain_id}/retry", status=409)

        assert refusal["code"] == "not_retryable"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/chains/{id}", None),
        ("GET", "/chains/{id}/jobs", None),
        ("GET", "/chains/{id}/result?timeoutSeconds=20", None),
        ("POST", "/chains/{id}/cancel", None),
        ("POST", "/chains/cancel", {"ids": ["{id}"]}),
        ("POST", "/chains/{id}/retry", None),
        ("POST", "/chains/{id}/complete", {"output": 1}),
        ("POST", "/chains/{id}/fail", {"error": "x"}),
        ("POST", "/chains/{id}/continue", {"next": {"type": "x"}}),
        ("DELETE", "/chains/{id}", None),
    ],
)
async def test_a_chain_that_does_not_exist_is_404(ask, method, path, body):
    nobody = str(uuid4())
    if body is not None and "ids" in body:
        body = {"ids": [nobody]}

    refusal = await ask(method, path.replace("{id}", nobody), body, status=404)

    assert refusal["code"] == "chain_not_found"


async def test_a_blocker_that_does_not_exist_is_404(ask, job):
    asked = {"chains": [{"type": job, "blockers": [str(uuid4())]}]}

    assert (await ask("POST", "/chains", asked, status=404))["code"] == "blocker_missing"


@pytest.mark.parametrize(
    "chain",
    [
        {},
        {"type": ""},
        {"type": "x" * 256},
        {"type": "two\nlines"},
        {"type": "x", "priority": 40_000},
        {"type": "x", "maxAttempts": 0},
        {"type": "x", "delaySeconds": -1},
        {"type": "x", "delaySeconds": 1, "at": "2100-01-01T00:00:00Z"},
        {"type": "x", "at": "2100-01-01T00:00:00"},
        {"type": "x", "blockers": ["nonsense"]},
        {"type": "x", "blockers": ["01900000-0000-7000-8000-000000000000"] * 2},
        {"type": "x", "keyScope": "sometimes", "key": "k"},
        {"type": "x", "onBlockerFailure": "hope"},
        {"type": "nul\0"},
    ],
)
async def test_a_chain_that_makes_no_sense_is_400(ask, chain):
    await ask("POST", "/chains", {"chains": [chain]}, status=400)


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "after=x", "state=odd", "order=odd"])
async def test_a_list_that_makes_no_sense_is_400(ask, query):
    await ask("GET", f"/chains?{query}", status=400)


@pytest.mark.parametrize("count", [0, 1001])
async def test_a_request_starts_one_to_a_thousand_chains(ask, count):
    await ask("POST", "/chains", {"chains": [{"type": "x"}] * count}, status=400)


async def test_chains_are_counted_by_state(ask, queue):
    await ask.start(f"job of {queue}")

    counts = {each["state"]: each for each in (await ask("GET", "/chains/counts"))["states"]}

    assert set(counts) == {"open", "failed", "cancelled", "completed"}
    assert counts["open"]["isExact"]


async def test_a_graph_holds_what_is_around_a_chain(ask, queue):
    first = await ask.start(f"first {queue}")
    second = await ask.start(f"second {queue}", blockers=[first])

    jobs = (await ask("GET", f"/chains/{second}/graph"))["jobs"]
    around = (await ask("GET", f"/chains/{first}/graph"))["jobs"]

    assert [(job["chainId"], job["waitsFor"]) for job in jobs] == [(second, [first]), (first, [])]
    assert [job["state"] for job in jobs] == ["blocked", "ready"]
    assert [job["chainId"] for job in around] == [first, second]
    await ask("GET", f"/chains/{uuid4()}/graph", status=404)
