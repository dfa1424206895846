"""What a client can ask for without any worker, and what it refuses."""

from datetime import UTC, datetime, timedelta

import pytest

from skep.db.access.foreign import NoTransaction, UnknownConnection
from skep.jobs import ChainFilter, Continue, Dedup, JobFilter, JobTypes, Limits, Ref, Start
from skep.jobs.errors import (
    BlockerMissing,
    ChainClosed,
    ChainExists,
    ChainNotFound,
    ChainReferenced,
    DuplicateBlocker,
    InvalidInput,
    JobNotFound,
    JobTypeMismatch,
    NotRetryable,
    NotTriggerable,
    SelfBlocked,
    UnknownJobType,
)
from skep.jobs.identifiers import new_id
from skep.model.errors import BadRequest, Defect
from tests.jobs.support.shop import (
    Basket,
    Order,
    Parcel,
    charge,
    count_down,
    hold,
    price,
    ship,
    total,
)


async def state_of(client, chain):
    (row,) = (await client.inspection.chains(ChainFilter(ids=[chain.id]))).items
    return row.state


async def test_case_01_a_chain_of_a_rolled_back_transaction_does_not_exist(client, sql):
    transaction = sql.transaction()
    await transaction.start()
    chain = await client.start(price, 1, tx=sql)
    await transaction.rollback()

    with pytest.raises(ChainNotFound):
        await chain.result(timeout=20)


async def test_case_02_a_chain_is_there_when_the_users_transaction_commits(client, sql):
    async with sql.transaction():
        chain = await client.start(price, 1, tx=sql)
        assert (await client.inspection.chains(ChainFilter())).items == []

    assert await state_of(client, chain) == "open"


async def test_a_connection_outside_a_transaction_is_refused(client, sql):
    with pytest.raises(NoTransaction):
        await client.start(price, 1, tx=sql)
    with pytest.raises(UnknownConnection, match="str"):
        await client.start(price, 1, tx="not a connection")


async def test_case_16_blockers_that_cannot_be_are_refused_and_nothing_is_written(client):
    part = await client.start(price, 1)

    with pytest.raises(DuplicateBlocker):
        await client.start(price, 2, blockers=[part.ref, part.ref])
    with pytest.raises(BlockerMissing):
        await client.start(total, Basket("x", [Ref(new_id())]))
    chain_id = new_id()
    with pytest.raises(BlockerMissing):
        await client.start(price, 2, chain_id=chain_id, blockers=[Ref(chain_id)])

    assert len((await client.inspection.chains(ChainFilter())).items) == 1


async def test_a_blocker_may_be_named_by_its_id(client):
    part = await client.start(price, 1)
    chain = await client.start(price, 2, blockers=[part.id])

    assert [row.chain for row in await client.inspection.blockers(chain.id)] == [part.id]
    with pytest.raises(DuplicateBlocker):
        await client.start(price, 3, blockers=[part.id, part.ref])
    for wrong in (str(part.id), part, None):
        with pytest.raises(BadRequest, match="invalid blocker"):
            await client.start(price, 3, blockers=[wrong])
    with pytest.raises(BadRequest, match="invalid blocker"):
        Continue(price, 3, blockers=[7])


async def test_inputs_and_options_that_make_no_sense_are_refused(client):
    with pytest.raises(InvalidInput):
        await client.start(price, "one")
    with pytest.raises(BadRequest, match="time zone"):
        await client.start(price, 1, at=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(BadRequest, match="use one of them"):
        await client.start(price, 1, at=datetime.now(UTC), after=timedelta(1))
    with pytest.raises(BadRequest, match="on_blocker_failure 'hope'"):
        await client.start(price, 1, on_blocker_failure="hope")
    with pytest.raises(BadRequest, match="priority"):
        await client.start(price, 1, priority=1 << 20)
    with pytest.raises(BadRequest, match="use 1 to 1000"):
        await client.inspection.jobs(JobFilter(), limit=1001)
    assert await client.start_many([]) == []


async def test_an_id_can_be_used_once(client):
    chain = await client.start(price, 1)

    with pytest.raises(ChainExists):
        await client.start(price, 1, chain_id=chain.id)


async def test_case_18_the_second_chain_with_a_key_is_the_first(client):
    first = await client.start(price, 1, key="k")

    second = await client.start(price, 2, key="k")

    assert (second.id, second.is_duplicate, first.is_duplicate) == (first.id, True, False)
    await client.cancel(first.id)
    assert (await client.start(price, 3, key=Dedup("k", scope="any"))).id == first.id
    assert not (await client.start(price, 3, key="k")).is_duplicate


async def test_case_29_a_chain_is_completed_step_by_step_from_outside(client):
    chain = await client.start(charge, Order(3))

    async with client.resolve(chain.id, charge) as pending:
        assert pending.input == Order(3)
        pending.go_on(Continue(ship, Parcel(3, "r")))
    with pytest.raises(JobTypeMismatch):
        async with client.resolve(chain.id, charge):
            pass
    async with client.resolve(chain.id, ship) as last:
        last.finish("by hand")

    assert await chain.result(timeout=20) == "by hand"
    with pytest.raises(ChainClosed):
        async with client.resolve(chain.id, ship):
            pass
    with pytest.raises(ChainNotFound):
        async with client.resolve(new_id(), ship):
            pass


async def test_case_29_a_block_that_says_nothing_or_raises_changes_nothing(client):
    chain = await client.start(price, 1)

    async with client.resolve(chain.id, price):
        pass
    with pytest.raises(ZeroDivisionError):
        await finish_and_raise(client, chain)

    assert await state_of(client, chain) == "open"


async def finish_and_raise(client, chain):
    async with client.resolve(chain.id, price) as pending:
        pending.finish(1)
        raise ZeroDivisionError


async def test_case_29_a_completion_is_part_of_the_users_transaction(client, sql):
    chain = await client.start(price, 1)
    transaction = sql.transaction()
    await transaction.start()
    async with client.resolve(chain.id, price, tx=sql) as pending:
        pending.finish(1)
    await transaction.rollback()
    assert await state_of(client, chain) == "open"

    async with sql.transaction(), client.resolve(chain.id, price, tx=sql) as pending:
        pending.fail("by hand")
    assert await state_of(client, chain) == "failed"


async def test_case_16_a_continuation_cannot_wait_for_its_own_chain(client):
    chain = await client.start(count_down, 1)

    with pytest.raises(SelfBlocked):
        async with client.resolve(chain.id, count_down) as pending:
            pending.go_on(Continue(count_down, 0, blockers=[chain.ref]))


async def test_cancel_and_retry(client):
    chain = await client.start(price, 1)

    assert await client.cancel(chain.id) == {chain.id: "cancelled"}
    await client.retry(chain.id)

    assert await state_of(client, chain) == "open"
    with pytest.raises(NotRetryable, match="open"):
        await client.retry(chain.id)
    with pytest.raises(ChainNotFound):
        await client.cancel(new_id())
    with pytest.raises(ChainNotFound):
        await client.retry(new_id())
    with pytest.raises(BadRequest):
        await client.cancel()


async def test_case_32_a_chain_that_is_needed_says_by_whom(client):
    part = await client.start(price, 1)
    whole = await client.start(total, Basket("x", [part.ref]))

    with pytest.raises(ChainReferenced) as refused:
        await client.delete(part.id)

    assert refused.value.references == {part.id: [whole.id]}
    assert set(await client.delete(whole.id, cascade=True)) == {part.id, whole.id}


async def test_case_33_old_chains_are_pruned(client):
    chains = await client.start_many([Start(price, n) for n in range(5)])
    await client.cancel(*(chain.id for chain in chains[:3]))

    assert await client.prune(datetime.now(UTC) + timedelta(minutes=1)) == 3
    assert await client.prune(datetime.now(UTC) + timedelta(minutes=1)) == 0


async def test_case_08_trigger(client):
    chain = await client.start(price, 1, after=timedelta(hours=1))

    await client.trigger(chain.id)

    (job,) = (await client.inspection.jobs(JobFilter(ids=[chain.id]))).items
    assert job.state == "ready"
    with pytest.raises(JobNotFound):
        await client.trigger(new_id())
    blocked = await client.start(price, 1, blockers=[chain.ref])
    with pytest.raises(NotTriggerable, match="blocked"):
        await client.trigger(blocked.id)


async def test_case_34_all_chains_come_page_by_page_each_once(client):
    started = await client.start_many([Start(price, n) for n in range(1205)])

    first = await client.inspection.chains(ChainFilter(type="price"), limit=1000)
    rest = await client.inspection.chains(ChainFilter(type="price"), after=first.after, limit=1000)

    assert rest.after is None
    listed = [row.id for row in (*first.items, *rest.items)]
    assert listed == sorted((chain.id for chain in started), reverse=True)


async def test_a_chain_of_another_type_is_not_read_as_this_one(client):
    chain = await client.start(price, 1)
    await client.cancel(chain.id)

    with pytest.raises(JobTypeMismatch):
        await client.chain(hold, chain.id).result(timeout=20)


def test_declarations_that_make_no_sense_are_refused():
    types = JobTypes("x")
    declared = types.declare("a", int, str)
    assert types["a"] is declared
    with pytest.raises(BadRequest, match="twice"):
        types.declare("a", int, str)
    with pytest.raises(BadRequest, match="name"):
        types.declare("", int, str)
    with pytest.raises(UnknownJobType):
        types["b"]
    with pytest.raises(BadRequest):
        Limits(concurrency=0)
    with pytest.raises(BadRequest):
        Limits(rate=1, per=timedelta(0))
    with pytest.raises(Defect, match="annotated"):

        @types.job("c")
        async def untyped(ctx):
            return 1
