"""What becomes of a job when a chain that it waits for does not complete: its policy, and lists."""

import json

import pytest

from skep.jobs.identifiers import new_id

CANCEL = "select skep.chain_cancel($1, false, null)"
RETRY = "select outcome from skep.chain_retry($1)"
LIST = "select * from skep.job_list(null, null, null, $1, null, null, null, true, null, 10)"
CHAINS = "select * from skep.chain_list(null, null, null, null, $1, null, null, true, null, 10)"


async def fail(chains, worker, name):
    await chains.run(worker, name, outcome="failed", error="x")


@pytest.mark.parametrize("how", ["failed", "cancelled", "late"])
async def test_a_job_that_ignores_it_runs_when_its_blocker_did_not_complete(chains, worker, how):
    blocker = await chains.start("a", deadline_s=60)
    job_id = await chains.start("b", blockers=[blocker], on_failure="ignore")
    if how == "failed":
        await fail(chains, worker, "a")
    elif how == "cancelled":
        await chains.rows(CANCEL, [blocker])
    else:
        await chains.advance(60)
        await chains.rows("select skep.chain_expire(10)")

    (claimed,) = await chains.claim(worker, "b")
    assert claimed["job_id"] == job_id
    (seen,) = json.loads(claimed["blockers"])
    assert seen["state"] == ("cancelled" if how == "cancelled" else "failed")
    assert seen["onFailure"] == "ignore"


async def test_workers_are_told_of_a_job_that_ignores_the_failure(chains, open_chains, worker):
    heard = []
    other = await open_chains()
    await other.connection.add_listener("skep_job_ready", lambda *told: heard.append(told[3]))
    blocker = await chains.start("a")
    await chains.start("b", blockers=[blocker], on_failure="ignore")

    await fail(chains, worker, "a")
    await other.value("select 1")

    assert heard == ["b"]


async def test_a_chain_that_had_failed_before_is_ignored_at_once(chains, worker):
    blocker = await chains.start("a")
    await fail(chains, worker, "a")

    job_id = await chains.start("b", blockers=[blocker], on_failure="ignore")

    assert await chains.state(job_id) == "ready"


async def test_a_retried_chain_is_awaited_again_while_the_job_waits_for_others(chains, worker):
    first, second = await chains.start("a"), await chains.start("b")
    job_id = await chains.start("c", blockers=[first, second], on_failure="ignore")
    await fail(chains, worker, "a")

    assert await chains.value(RETRY, [first]) == "retried"
    assert await chains.stranded() == []
    await chains.run(worker, "a")

    assert await chains.state(job_id) == "blocked", "the second is still open"
    assert await chains.stranded() == []
    await chains.run(worker, "b")
    assert await chains.state(job_id) == "ready"


async def test_a_job_and_its_blocker_that_are_retried_together_are_counted_once(chains, worker):
    blocker, other = await chains.start("a"), await chains.start("b")
    job_id = await chains.start("c", blockers=[blocker, other], on_failure="ignore")
    await chains.rows(CANCEL, [blocker, job_id])

    await chains.rows(RETRY, [blocker, job_id])

    assert await chains.stranded() == []


async def test_lists_show_that_what_a_job_waits_for_has_failed(chains, worker):
    blocker, other = await chains.start("a"), await chains.start("b")
    waiting = await chains.start("c", blockers=[blocker, other])
    free = await chains.start("c")
    await fail(chains, worker, "a")

    shown = {row["id"]: row for row in await chains.rows(LIST, [waiting, free])}
    assert shown[waiting]["state"] == "blocked"
    assert (shown[waiting]["on_blocker_failure"], shown[waiting]["failed_blockers"]) == ("wait", 1)
    assert (shown[free]["on_blocker_failure"], shown[free]["failed_blockers"]) == (None, None)
    (chain,) = await chains.rows(CHAINS, [waiting])
    assert (chain["last_job_state"], chain["failed_blockers"]) == ("blocked", 1)


async def test_an_unknown_policy_is_refused(chains):
    blocker = await chains.start("a")

    with pytest.raises(Exception, match="blocker__on_failure_known"):
        await chains.start_all({"id": new_id(), "blockers": [blocker], "on_failure": "hope"})
