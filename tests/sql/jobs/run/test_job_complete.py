"""job_complete says of one completed job what job_settle says, and writes the same rows."""

import asyncio
import json

import pytest

from skep.jobs.identifiers import new_id
from tests.support.broker import until_blocked_by

COMPLETE = "select outcome, closed, woken from skep.job_complete($1, $2, $3, $4, $5)"
ROWS = {
    "chain": "select * from skep.chain c where c.id = $1",
    "job": "select * from skep.job j where j.chain_id = $1",
    "key": "select k.is_open from skep.chain_key k where k.chain_id = $1",
    "waiting": "select o.open_blockers, o.due_at from skep.open_job o join skep.blocker b"
    " on b.job_id = o.job_id where b.chain_id = $1",
}
OF_ITS_OWN = {"id", "chain_id", "last_job_id", "key"}
"""What differs between any two chains."""


async def complete(chains, worker_id, chain_id, *, job_id=None, attempt=1, output="7"):
    (row,) = await chains.rows(COMPLETE, worker_id, chain_id, job_id or chain_id, attempt, output)
    return row


async def written(chains, chain_id):
    found = {}
    for name, query in ROWS.items():
        rows = await chains.rows(query, chain_id)
        found[name] = [
            {key: value for key, value in row.items() if key not in OF_ITS_OWN} for row in rows
        ]
    return found


@pytest.mark.parametrize("has_key", [True, False])
@pytest.mark.parametrize("has_limit", [True, False])
@pytest.mark.parametrize("is_awaited", [True, False])
async def test_it_writes_and_says_what_settling_does(
    chains, worker, has_key, has_limit, is_awaited
):
    if has_limit:
        await chains.type_ids("work")
        limit = "update skep.job_type set concurrency = 5 where name = 'work'"
        await chains.connection.execute(limit)
    pair = [await chains.start(key=f"key {n}" if has_key else None) for n in range(2)]
    waiting = [await chains.start("after", blockers=[each]) for each in pair if is_awaited]
    await chains.claim(worker)
    await chains.advance(3)

    (settled,) = await chains.settle_all(worker, {"job_id": pair[0], "output": 7})
    completed = await complete(chains, worker, pair[1])

    assert completed["outcome"] == settled["outcome"] == "settled"
    assert completed["woken"] == settled["woken"]
    assert (settled["closed"], completed["closed"]) == ([pair[0]], [pair[1]])
    assert await written(chains, pair[1]) == await written(chains, pair[0])
    assert [await chains.state(each) for each in waiting] == ["ready"] * len(waiting)
    assert await chains.stranded() == []


async def test_case_26_a_stale_owner_can_write_nothing(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)
    await chains.settle(worker, chain_id, "released")
    await chains.claim(worker)

    for token in ({"attempt": 1}, {"worker_id": new_id(), "attempt": 2}, {"job_id": new_id()}):
        answer = await complete(chains, **{"worker_id": worker, "chain_id": chain_id, **token})
        assert (answer["outcome"], answer["closed"]) == ("lost", [])

    assert await chains.state(chain_id) == "running"


async def test_a_job_that_is_not_the_first_of_its_chain_completes_it(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)
    last = await chains.go_on(worker, chain_id, "second")
    await chains.claim(worker, "second")

    answer = await complete(chains, worker, chain_id, job_id=last, output='{"sum": 3}')

    assert answer["closed"] == [chain_id]
    (row,) = await chains.rows("select * from skep.chain_outcome($1)", [chain_id])
    assert (row["state"], json.loads(row["output"])) == ("completed", {"sum": 3})


async def test_a_chain_that_was_deleted_is_lost(chains, worker):
    chain_id = await chains.start()
    await chains.claim(worker)
    await chains.rows("select * from skep.chain_delete($1, false)", [chain_id])

    assert (await complete(chains, worker, chain_id))["outcome"] == "lost"


async def test_defect_v04_who_begins_to_wait_while_it_completes_is_not_stranded(
    chains, open_chains, worker
):
    other = await open_chains()
    chain_id = await chains.start()
    await chains.claim(worker)
    async with chains.connection.transaction():
        await complete(chains, worker, chain_id)
        late = asyncio.create_task(other.start("after", blockers=[chain_id]))
        await until_blocked_by(chains.connection)

    assert await chains.state(await late) == "ready"
    assert await chains.stranded() == []


async def test_defect_v04_who_began_to_wait_before_it_completes_is_unblocked(
    chains, open_chains, worker
):
    other = await open_chains()
    chain_id = await chains.start()
    await chains.claim(worker)
    async with other.connection.transaction():
        waiting = await other.start("after", blockers=[chain_id])
        late = asyncio.create_task(complete(chains, worker, chain_id))
        await until_blocked_by(other.connection)

    assert (await late)["outcome"] == "settled"
    assert await chains.state(waiting) == "ready"
    assert await chains.stranded() == []
