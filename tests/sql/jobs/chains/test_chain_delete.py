import asyncio
from datetime import timedelta

from skep.jobs.identifiers import new_id

TABLES = ("chain", "job", "open_job", "blocker", "job_attempt", "chain_key")


async def delete(chains, *ids, cascade=False):
    rows = await chains.rows("select * from skep.chain_delete($1, $2)", list(ids), cascade)
    return [tuple(row) for row in rows]


async def left(chains):
    return {
        table: count
        for table in TABLES
        if (count := await chains.value(f"select count(*) from skep.{table}"))
    }


async def test_every_row_of_a_chain_goes(chains, worker):
    chain_id = await chains.start(key="k")
    await chains.run(worker, outcome="retry", error="x", delay_s=0)
    await chains.claim(worker)
    await chains.go_on(worker, chain_id, "second", attempt=2)

    assert await delete(chains, chain_id, new_id()) == [(chain_id, None)]
    assert await left(chains) == {}


async def test_case_32_a_chain_that_another_needs_is_not_deleted_nor_any_other(chains):
    needed, free = await chains.start("a"), await chains.start()
    dependent = await chains.start(blockers=[needed])

    assert await delete(chains, needed, free) == [(needed, dependent)]
    assert (await left(chains))["chain"] == 3


async def test_case_32_chains_that_need_each_other_go_together(chains):
    needed = await chains.start("a")
    dependent = await chains.start(blockers=[needed])

    assert len(await delete(chains, needed, dependent)) == 2
    assert await left(chains) == {}


async def test_defect_v05_a_cascade_finds_the_blockers_of_continuations(chains, worker):
    chain_id, blocker = await chains.start(), await chains.start("a")
    await chains.claim(worker)
    await chains.go_on(worker, chain_id, "second", blockers=[blocker])

    assert len(await delete(chains, chain_id, cascade=True)) == 2
    assert await left(chains) == {}


async def test_case_32_a_cascade_is_refused_if_somebody_outside_needs_part_of_it(chains):
    blocker = await chains.start("a")
    chain_id, outsider = [await chains.start(blockers=[blocker]) for _ in range(2)]

    assert await delete(chains, chain_id, cascade=True) == [(blocker, outsider)]
    assert (await left(chains))["chain"] == 3


async def test_a_cascade_from_a_blocker_takes_what_waits_for_it_and_that_ones_blockers(chains):
    blocker, other = await chains.start("a"), await chains.start("b")
    second = await chains.start(blockers=[blocker, other])
    third = await chains.start(blockers=[second])
    stranger = await chains.start("a")

    gone = await delete(chains, blocker, cascade=True)

    assert gone == [(each, None) for each in sorted([blocker, other, second, third])]
    assert await chains.chain_state(stranger) == "open"


async def test_defect_v05_who_begins_to_wait_during_a_delete_finds_the_chain_gone(
    chains, open_chains
):
    other = await open_chains()
    needed = await chains.start("a")
    async with chains.connection.transaction():
        await delete(chains, needed)
        late = asyncio.create_task(other.start_all({"blockers": [needed]}))

    assert [row["outcome"] for row in await late] == ["missing_blocker"]


async def test_case_32_deletes_of_overlapping_sets_do_not_deadlock(chains, open_chains):
    sessions = [chains, await open_chains(), await open_chains()]
    ids = [await chains.start() for _ in range(30)]

    gone = await asyncio.gather(
        delete(sessions[0], *ids), delete(sessions[1], *reversed(ids)), delete(sessions[2], *ids)
    )

    assert sorted(len(each) for each in gone) == [0, 0, 30]


async def prune(chains, before, limit=100, states=("completed", "failed")):
    deleted, at, chain_id = 0, None, None
    while True:
        ((count, at, chain_id),) = await chains.rows(
            "select * from skep.chain_prune($1, $2, $3, $4, $5)",
            before,
            list(states),
            limit,
            at,
            chain_id,
        )
        deleted += count
        if chain_id is None:
            return deleted


async def test_case_33_old_chains_go_in_batches_and_open_ones_stay(chains, worker):
    for _ in range(7):
        await chains.start("old")
    await chains.run(worker, "old")
    await chains.advance(3600)
    await chains.start("old")
    await chains.run(worker, "old")
    await chains.start("open")

    assert await prune(chains, chains.now - timedelta(minutes=1), limit=3) == 7
    assert (await left(chains))["chain"] == 2


async def test_case_33_blockers_of_other_chains_stay_until_those_are_gone(chains, worker):
    blocker = await chains.start("a")
    await chains.run(worker, "a")
    dependent = await chains.start(blockers=[blocker])
    await chains.advance(60)

    assert await prune(chains, chains.now, limit=1) == 0
    await chains.run(worker)
    assert await chains.chain_state(dependent) == "completed"
    await chains.advance(60)
    assert await prune(chains, chains.now) == 1
    assert await prune(chains, chains.now) == 1
    assert await left(chains) == {}


async def test_only_the_states_that_were_named_go(chains, worker):
    await chains.start()
    await chains.run(worker, outcome="failed", error="x")
    await chains.advance(60)

    assert await prune(chains, chains.now, states=("completed",)) == 0


async def start_again(chains, **item):
    """Start a chain with the key k that also closed ones hold; return its id and the outcome."""
    ((_, chain_id, outcome),) = await chains.start_all({"key": "k", "any": True, **item})
    return chain_id, outcome


async def test_a_key_that_is_held_for_ever_outlives_its_chain(chains, worker):
    holder, _ = await start_again(chains)
    await chains.run(worker)
    await chains.advance(60)

    assert await prune(chains, chains.now) == 1

    assert await left(chains) == {"chain_key": 1}
    assert await start_again(chains) == (holder, "duplicate")
    assert await chains.start(key="k") != holder, "with the scope open the chain that ended lets go"
    await chains.run(worker)
    await chains.advance(60)
    await prune(chains, chains.now)
    assert await left(chains) == {}


async def test_a_key_that_is_held_for_a_time_goes_with_the_first_prune_after_it(chains, worker):
    holder, _ = await start_again(chains, window_s=600)
    await chains.run(worker)
    await chains.advance(60)
    await prune(chains, chains.now)
    assert await start_again(chains, window_s=600) == (holder, "duplicate")

    await chains.advance(600)
    await prune(chains, chains.now - timedelta(days=30))

    assert await left(chains) == {}


async def test_a_key_goes_with_a_chain_that_is_deleted(chains, worker):
    holder, _ = await start_again(chains)
    await chains.run(worker)

    await delete(chains, holder)

    assert (await start_again(chains))[1] == "started"
