import asyncio

from skep.jobs.identifiers import new_id
from tests.sql.jobs.chains.test_chain_delete import left
from tests.support.broker import until_blocked_by


async def discard(chains, *ids, state=None):
    rows = await chains.rows("select * from skep.chain_discard($1, $2)", list(ids), state)
    return {row["chain_id"]: row["outcome"] for row in rows}


async def test_each_chain_goes_with_every_row_it_has(chains, worker):
    done = await chains.start("done", key="k")
    await chains.run(worker, "done")
    waiting = await chains.start()

    outcomes = await discard(chains, done, waiting, new_id())

    assert outcomes == {done: "deleted", waiting: "deleted"}
    assert await left(chains) == {}


async def test_a_chain_that_another_needs_is_refused_by_itself(chains):
    needed, free = await chains.start("a"), await chains.start()
    await chains.start(blockers=[needed])

    assert await discard(chains, needed, free) == {needed: "needed", free: "deleted"}
    assert (await left(chains))["chain"] == 2


async def test_chains_that_need_only_each_other_go_together(chains):
    needed = await chains.start("a")
    dependent = await chains.start(blockers=[needed])

    assert await discard(chains, needed, dependent) == {needed: "deleted", dependent: "deleted"}


async def test_a_chain_that_stays_keeps_all_that_it_needs_through_others(chains):
    first = await chains.start("a")
    second = await chains.start("a", blockers=[first])
    third = await chains.start("a", blockers=[second])
    await chains.start(blockers=[third])

    outcomes = await discard(chains, first, second, third)

    assert set(outcomes.values()) == {"needed"}
    assert await chains.stranded() == []


async def test_a_chain_that_is_in_another_state_by_now_stays(chains, worker):
    again, failed = await chains.start(), await chains.start()
    await chains.run(worker, outcome="failed", error="x")
    await chains.rows("select * from skep.chain_retry($1)", [again])

    assert await discard(chains, again, failed, state="failed") == {
        again: "open",
        failed: "deleted",
    }
    assert await chains.chain_state(again) == "open"


async def test_a_chain_that_somebody_holds_is_passed_over_without_waiting(chains, open_chains):
    held, free = await chains.start(), await chains.start()
    other = await open_chains()
    async with other.connection.transaction():
        await other.rows("select * from skep.chain_hold($1)", held)

        assert await discard(chains, held, free) == {free: "deleted"}

    assert await discard(chains, held) == {held: "deleted"}


async def test_who_begins_to_wait_for_a_chain_that_is_going_finds_it_gone(chains, open_chains):
    going, other = await chains.start("a"), await open_chains()
    async with chains.connection.transaction():
        await discard(chains, going)
        late = asyncio.create_task(other.start_all({"blockers": [going]}))
        await until_blocked_by(chains.connection)

    assert [row["outcome"] for row in await late] == ["missing_blocker"]
