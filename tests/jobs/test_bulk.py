"""All chains or jobs that match a filter, changed batch by batch."""

import asyncio
from datetime import timedelta

import pytest

from skep.jobs import ChainFilter, JobFilter, Start
from skep.jobs.client import bulk
from skep.model.errors import BadRequest
from tests.jobs.support.shop import Order, charge, price

LATER = timedelta(hours=1)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(bulk, "BATCH", 4)


async def start_some(client, count, job=price, value=7, **options):
    chains = await client.start_many([Start(job, value, **options) for _ in range(count)])
    return [chain.id for chain in chains]


async def states(client):
    page = await client.inspection.chains(ChainFilter(), limit=1000)
    return {chain.id: chain.state for chain in page.items}


async def test_what_matches_is_cancelled_in_several_transactions(client, sql):
    ids = await start_some(client, 10)
    (other,) = await start_some(client, 1, charge, Order(1))
    told = []

    sweep = await client.bulk.cancel(
        ChainFilter(type="price"), reason="enough", told=lambda now: told.append(now.done)
    )

    assert (sweep.seen, sweep.done, sweep.refused, sweep.after) == (10, 10, {}, None)
    assert told == [4, 8, 10]
    assert await states(client) == {**dict.fromkeys(ids, "cancelled"), other: "open"}
    written = "select count(distinct xmin::text) from skep.chain where error = 'enough'"
    assert await sql.fetchval(written) == 3


async def test_to_do_it_again_changes_nothing(client):
    await start_some(client, 5)
    await client.bulk.cancel(ChainFilter())
    before = await states(client)

    sweep = await client.bulk.cancel(ChainFilter())

    assert (sweep.seen, sweep.done) == (0, 0)
    assert await states(client) == before


async def test_it_goes_on_where_a_limit_ended_it(client):
    await start_some(client, 10)

    first = await client.bulk.cancel(ChainFilter(), limit=6)
    second = await client.bulk.cancel(ChainFilter(), limit=6, after=first.after)

    assert (first.seen, second.seen, second.after) == (6, 4, None)
    assert set((await states(client)).values()) == {"cancelled"}


async def test_a_limit_that_what_matches_fills_exactly_leads_to_an_empty_rest(client):
    await start_some(client, 4)

    first = await client.bulk.cancel(ChainFilter(), limit=4)

    assert first.done == 4
    assert (await client.bulk.cancel(ChainFilter(), limit=4, after=first.after)).seen == 0


async def test_what_is_started_meanwhile_is_not_met(client):
    ids = await start_some(client, 6)
    late = []

    async def go_on():
        late.extend(await start_some(client, 3))

    tasks = []
    await client.bulk.cancel(
        ChainFilter(), told=lambda _: tasks.append(asyncio.ensure_future(go_on()))
    )
    await asyncio.gather(*tasks)

    found = await states(client)
    assert {found[each] for each in ids} == {"cancelled"}
    assert {found[each] for each in late} == {"open"}


async def test_a_chain_that_somebody_holds_is_refused_and_the_others_are_not(client, sql):
    ids = await start_some(client, 6)
    async with sql.transaction():
        await sql.fetch("select * from skep.chain_hold($1)", ids[2])

        sweep = await client.bulk.cancel(ChainFilter())

    assert (sweep.done, sweep.refused) == (5, {"unavailable": 1})
    assert [(each.id, each.reason) for each in sweep.examples] == [(ids[2], "unavailable")]
    assert (await client.bulk.cancel(ChainFilter())).done == 1


async def test_a_cascade_takes_those_that_wait_whatever_their_type(client):
    (needed,) = await start_some(client, 1)
    (waiting,) = await start_some(
        client, 1, charge, Order(1), blockers=[client.chain(price, needed).ref]
    )

    sweep = await client.bulk.cancel(ChainFilter(type="price"), cascade=True)

    assert (sweep.seen, sweep.done) == (1, 2)
    assert await states(client) == {needed: "cancelled", waiting: "cancelled"}


async def test_failed_chains_go_on_and_cancelled_ones_when_they_are_meant(client, start_worker):
    ids = await start_some(client, 6)
    await client.bulk.cancel(ChainFilter())
    worker = await start_worker()

    assert (await client.bulk.retry(ChainFilter(type="price"))).seen == 0
    sweep = await client.bulk.retry(ChainFilter(state="cancelled"))

    assert sweep.done == 6
    assert {await client.chain(price, each).result(timeout=20) for each in ids} == {7}
    await worker.stop()


async def test_a_chain_whose_key_was_taken_is_refused(client):
    first = await client.start(price, 7, key="k")
    await client.cancel(first.id)
    await client.start(price, 8, key="k")

    sweep = await client.bulk.retry(ChainFilter(state="cancelled"))

    assert (sweep.done, sweep.refused) == (0, {"key_taken": 1})


async def test_chains_are_deleted_before_those_that_they_waited_for(client):
    needed = await start_some(client, 6)
    refs = [client.chain(price, each).ref for each in needed]
    await start_some(client, 6, blockers=refs)

    sweep = await client.bulk.delete(ChainFilter())

    assert (sweep.done, sweep.refused) == (12, {})
    assert await states(client) == {}


async def test_a_chain_that_one_of_another_kind_needs_stays(client):
    (needed,) = await start_some(client, 1)
    await start_some(client, 1, charge, Order(1), blockers=[client.chain(price, needed).ref])
    await start_some(client, 3)

    sweep = await client.bulk.delete(ChainFilter(type="price"))

    assert (sweep.done, sweep.refused) == (3, {"needed": 1})
    assert sweep.examples[0].id == needed


async def test_scheduled_jobs_run_now(client, start_worker):
    ids = await start_some(client, 9, after=LATER)
    (other,) = await start_some(client, 1, charge, Order(1), after=LATER)
    await start_worker(poll_s=60)

    sweep = await client.bulk.trigger(JobFilter(type="price"))

    assert (sweep.seen, sweep.done) == (9, 9)
    assert {await client.chain(price, each).result(timeout=20) for each in ids} == {7}
    assert (await states(client))[other] == "open"


async def test_counts_are_exact_up_to_a_bound_that_they_state(client, monkeypatch):
    await start_some(client, 5)
    await start_some(client, 3, after=LATER)

    exact = await client.bulk.count(ChainFilter(type="price"))
    assert (exact.count, exact.is_exact) == (8, True)
    scheduled = await client.bulk.count(JobFilter(state="scheduled"))
    assert (scheduled.count, scheduled.is_exact) == (3, True)
    monkeypatch.setattr(bulk, "MATCHES_BOUND", 5)
    bounded = await client.bulk.count(ChainFilter())
    assert (bounded.count, bounded.is_exact) == (5, False)


@pytest.mark.parametrize(
    ("name", "which"),
    [
        ("cancel", ChainFilter(state="completed")),
        ("retry", ChainFilter(state="open")),
        ("trigger", JobFilter(state="running")),
    ],
)
async def test_a_state_that_forbids_it_is_refused_before_anything_happens(client, name, which):
    await start_some(client, 2)

    with pytest.raises(BadRequest, match=which.state):
        await getattr(client.bulk, name)(which)

    assert set((await states(client)).values()) == {"open"}


async def test_only_some_of_the_refusals_are_named(client, sql):
    await start_some(client, bulk.EXAMPLES_MAX + 5)
    async with sql.transaction():
        await sql.execute("select from skep.chain for update")

        sweep = await client.bulk.cancel(ChainFilter())

    assert sweep.refused == {"unavailable": bulk.EXAMPLES_MAX + 5}
    assert len(sweep.examples) == bulk.EXAMPLES_MAX
