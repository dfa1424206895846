import asyncio

from skep.jobs.identifiers import new_id
from tests.sql.jobs.chains.test_chain_start import until_it_waits


async def cancel(chains, *ids, cascade=False):
    rows = await chains.rows(
        "select * from skep.chain_cancel($1, $2, 'not wanted')", list(ids), cascade
    )
    return {row["chain_id"]: (row["outcome"], row["job_id"]) for row in rows}


async def test_case_30_a_cancelled_chain_never_runs(chains, worker):
    chain_id = await chains.start()

    assert await cancel(chains, chain_id) == {chain_id: ("cancelled", None)}

    assert await chains.claim(worker) == []
    assert await chains.state(chain_id) == "cancelled"


async def test_case_30_a_running_job_loses_its_claim_and_is_named(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)

    assert await cancel(chains, chain_id) == {chain_id: ("cancelled", chain_id)}

    assert await chains.settle(worker, chain_id) == "lost"
    assert await chains.chain_state(chain_id) == "cancelled"


async def test_case_30_cancelling_again_changes_nothing(chains):
    chain_id = await chains.start()
    await cancel(chains, chain_id)

    assert await cancel(chains, chain_id) == {chain_id: ("cancelled", None)}


async def test_a_chain_that_ended_keeps_its_state(chains, worker):
    chain_id = await chains.start()
    await chains.run(worker)

    assert await cancel(chains, chain_id) == {chain_id: ("completed", None)}
    assert await chains.chain_state(chain_id) == "completed"


async def test_a_chain_that_does_not_exist_is_missing(chains):
    missing = new_id()

    assert await cancel(chains, missing) == {missing: ("missing", None)}


async def test_case_30_dependents_wait_on_fail_or_are_cancelled_as_asked(chains):
    chain_id = await chains.start("a")
    patient = await chains.start(blockers=[chain_id])
    fatal = await chains.start(blockers=[chain_id], on_failure="fail")
    await cancel(chains, chain_id)

    assert await chains.state(patient) == "blocked"
    assert await chains.chain_state(fatal) == "failed"


async def test_case_30_a_cascade_cancels_everything_that_waits(chains):
    chain_id = await chains.start("a")
    second = await chains.start(blockers=[chain_id])
    third = await chains.start(blockers=[second])
    blocker = await chains.start("b")
    other = await chains.start(blockers=[blocker])

    await cancel(chains, chain_id, cascade=True)

    assert [await chains.chain_state(each) for each in (second, third)] == ["cancelled"] * 2
    assert await chains.state(other) == "blocked"


async def test_a_cancelled_chain_gives_its_key_free(chains):
    await cancel(chains, await chains.start(key="k"))

    await chains.start(key="k")


async def test_case_29_of_a_cancel_and_a_completion_one_wins(chains, open_chains, worker):
    other, observer = await open_chains(), await open_chains()
    chain_id = await chains.start()
    await chains.claim(worker)
    async with chains.connection.transaction():
        await chains.settle(worker, chain_id)
        late = asyncio.create_task(cancel(other, chain_id))
        await until_it_waits(observer, other)

    assert await late == {chain_id: ("completed", None)}


async def test_case_30_chains_are_cancelled_and_completed_at_once_without_deadlocks(
    chains, open_chains, worker
):
    other = await open_chains()
    ids = [await chains.start("a") for _ in range(20)]
    for chain_id in ids:
        await chains.start(blockers=[chain_id], on_failure="fail")
    await chains.claim(worker, "a", limit=100)

    await asyncio.gather(
        chains.settle_all(worker, *({"job_id": each} for each in ids)),
        cancel(other, *reversed(ids), cascade=True),
    )

    assert await chains.stranded() == []
