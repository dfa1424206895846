"""Atomic jobs that share transactions: each keeps what it wrote if and only if it completes."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from skep.jobs import Ctx, JobTypes, Retry, Start
from skep.jobs.errors import ChainCancelled, ChainFailed
from skep.jobs.store import Settled, Settlement
from skep.jobs.worker.sharing import SharedTurn, Sharing, SharingUndone
from skep.model.errors import BadRequest, Unavailable
from tests.jobs.support.shop import new_stage, stage

SEATS = 10
QUICK = Retry(max_attempts=2, initial_s=0.01, jitter=0)

office = JobTypes("office")


@office.job("file", mode="atomic", together=SEATS, retry=QUICK)
async def file(ctx: Ctx[int, int]) -> int:
    """Note the number and the transaction, then do what the test says about the number."""
    await ctx.connection.execute(
        "insert into filed values ($1, pg_current_xact_id()::text::bigint)", ctx.input
    )
    stage.seen.append(ctx.input)
    if ctx.input == stage.plan.get("breaks"):
        await ctx.connection.execute("select 1 / 0")
    if ctx.input == stage.plan.get("holds"):
        stage.entered.set()
        await stage.may_leave.wait()
    return ctx.input


@office.job(
    "file in time",
    mode="atomic",
    together=SEATS,
    retry=Retry(max_attempts=1),
    timeout=timedelta(seconds=2),
)
async def file_in_time(ctx: Ctx[int, int]) -> int:
    await ctx.connection.execute("insert into filed values ($1, 0)", ctx.input)
    if ctx.input == stage.plan.get("dawdles"):
        await ctx.connection.execute("select pg_sleep(60)")
    return ctx.input


@pytest.fixture
def filed(arun, sql):
    arun(
        sql.execute(
            "create table filed (number integer, xid bigint,"
            " unique (number) deferrable initially deferred)"
        )
    )

    async def filed(column="number"):
        rows = await sql.fetch(f"select distinct {column} from filed order by 1")
        return [row[0] for row in rows]

    return filed


async def start_and_run(client, start_worker, job, count):
    chains = await client.start_many([Start(job, n) for n in range(count)])
    await start_worker(office, concurrency=count)
    return chains


async def results(chains):
    return await asyncio.gather(
        *(chain.result(timeout=60) for chain in chains), return_exceptions=True
    )


async def test_many_jobs_are_written_in_few_transactions(client, start_worker, filed):
    new_stage()
    chains = await start_and_run(client, start_worker, file, 3 * SEATS)

    assert await results(chains) == list(range(3 * SEATS))
    assert await filed() == list(range(3 * SEATS))
    assert len(await filed("xid")) <= 6


async def test_what_breaks_is_undone_alone(client, start_worker, filed):
    new_stage(breaks=4)
    chains = await start_and_run(client, start_worker, file, SEATS)

    got = await results(chains)

    assert [n for n, each in enumerate(got) if isinstance(each, ChainFailed)] == [4], got
    assert await filed() == [n for n in range(SEATS) if n != 4]
    assert [n for n in stage.seen if n != 4] == [n for n in range(SEATS) if n != 4]


async def test_a_job_that_takes_too_long_is_undone_alone(client, start_worker, filed):
    new_stage(dawdles=2)
    chains = await start_and_run(client, start_worker, file_in_time, 5)

    got = await results(chains)

    assert [n for n, each in enumerate(got) if isinstance(each, ChainFailed)] == [2]
    assert await filed() == [0, 1, 3, 4]


async def test_a_job_that_is_taken_away_takes_its_rows_with_it_and_no_others(
    client, start_worker, filed
):
    """Number 1 has had its turn when it is cancelled, and the transaction is still open."""
    stage = new_stage(holds=3)
    chains = await start_and_run(client, start_worker, file, SEATS)
    await stage.entered.wait()

    await client.cancel(chains[1].id)
    stage.may_leave.set()

    got = await results(chains)
    assert [n for n, each in enumerate(got) if isinstance(each, ChainCancelled)] == [1]
    assert [each for n, each in enumerate(got) if n != 1] == [n for n in range(SEATS) if n != 1]
    assert await filed() == [n for n in range(SEATS) if n != 1]


async def test_a_commit_that_fails_fails_for_the_guilty_one_only(client, start_worker, filed, sql):
    new_stage()
    await sql.execute("insert into filed values (6, 0)")
    chains = await start_and_run(client, start_worker, file, SEATS)

    got = await results(chains)

    assert [n for n, each in enumerate(got) if isinstance(each, ChainFailed)] == [6]
    assert await filed() == list(range(SEATS))
    assert await sql.fetchval("select count(*) from filed") == SEATS


async def test_a_chain_that_somebody_holds_does_not_hold_up_the_others(
    client, start_worker, filed, connect
):
    new_stage()
    other = await connect()
    chains = await client.start_many([Start(file, n) for n in range(5)])
    async with other.transaction():
        await other.fetch("select from skep.chain where id = $1 for update", chains[2].id)
        await start_worker(office, concurrency=5)

        free = [chain for n, chain in enumerate(chains) if n != 2]
        assert await results(free) == [0, 1, 3, 4]

    assert await chains[2].result(timeout=20) == 2
    assert await filed() == list(range(5))


async def test_workers_that_stop_leave_nothing_half_done(client, start_worker, filed):
    stage = new_stage(holds=2)
    chains = await client.start_many([Start(file, n) for n in range(5)])
    worker = await start_worker(office, concurrency=5)
    await stage.entered.wait()

    await worker.stop(grace_s=0.01)
    stage.may_leave.set()
    await start_worker(office, concurrency=5)

    assert await results(chains) == list(range(5))
    assert await filed() == list(range(5))


@pytest.mark.parametrize(
    "options", [{"together": 0}, {"together": 51, "mode": "atomic"}, {"together": 2}]
)
def test_what_cannot_be_shared_is_refused_when_it_is_declared(options):
    async def handler(ctx: Ctx[int, int]) -> int:
        return ctx.input

    with pytest.raises(BadRequest):
        JobTypes("x").job("x", **options)(handler)


class FakePool:
    """One connection that remembers what it was told, and how each transaction ended."""

    def __init__(self, *, is_away=False):
        self.said = []
        self.is_away = is_away
        self.is_broken = False

    @asynccontextmanager
    async def begin(self):
        if self.is_away:
            raise Unavailable
        try:
            yield self
        except BaseException:
            self.said.append("undone")
            raise
        self.said.append("committed")

    async def execute(self, statement):
        if self.is_broken:
            raise OSError
        self.said.append(statement)


def settlement():
    return Settlement(None, 1, "completed")


async def settle_all(_, settlements):
    return [Settled("settled", (), ()) for _ in settlements]


async def take_turn(sharing, *, touches):
    async with SharedTurn(sharing) as turn:
        if touches:
            assert turn.connection is not None
        return await turn.settle(settlement())


async def test_a_turn_without_a_statement_costs_none():
    pool = FakePool()
    sharing = Sharing(pool, 10, settle_all)

    got = await asyncio.gather(*(take_turn(sharing, touches=n == 3) for n in range(6)))

    assert [n for n, settled in enumerate(got) if settled is not None] == [3]
    assert pool.said == [
        "savepoint skep_turn",
        "release savepoint skep_turn; savepoint skep_turn",
        "committed",
    ]


async def test_a_transaction_has_no_more_turns_than_seats():
    pool = FakePool()
    sharing = Sharing(pool, 2, settle_all)

    await asyncio.gather(*(take_turn(sharing, touches=True) for _ in range(5)))

    assert pool.said.count("committed") == 3


async def test_a_row_is_crowded_when_its_seats_are_taken():
    sharing = Sharing(FakePool(), 2, settle_all)
    async with SharedTurn(sharing) as turn:
        assert not sharing.is_crowded
        second = asyncio.ensure_future(take_turn(sharing, touches=True))
        await asyncio.sleep(0)
        assert sharing.is_crowded

        await turn.settle(settlement())
        await second
        assert not sharing.is_crowded


async def test_more_than_one_transaction_may_be_under_way(client, start_worker, filed):
    """The first one that is held up does not hold up those who find no seat in it."""
    stage = new_stage(holds=0)
    chains = await start_and_run(client, start_worker, file, SEATS + 3)
    await stage.entered.wait()

    assert await results(chains[SEATS:]) == list(range(SEATS, SEATS + 3))

    stage.may_leave.set()
    assert await results(chains[:SEATS]) == list(range(SEATS))


async def test_who_cannot_have_a_transaction_is_sent_away():
    sharing = Sharing(FakePool(is_away=True), 2, settle_all)

    for _ in range(2):
        with pytest.raises(SharingUndone) as told:
            await take_turn(sharing, touches=True)
        assert isinstance(told.value.__cause__, Unavailable)


async def test_a_connection_that_breaks_keeps_nothing_and_hides_no_error():
    pool = FakePool()
    sharing = Sharing(pool, 3, settle_all)
    first = asyncio.ensure_future(take_turn(sharing, touches=True))

    async def break_it():
        async with SharedTurn(sharing) as turn:
            assert turn.connection is not None
            pool.is_broken = True
            raise LookupError

    with pytest.raises(LookupError):
        await break_it()

    with pytest.raises(SharingUndone):
        await first
    assert pool.said[-1] == "undone"


async def test_the_last_in_the_row_may_be_stopped_at_the_moment_of_its_turn():
    pool = FakePool()
    sharing = Sharing(pool, 10, settle_all)
    async with SharedTurn(sharing) as turn:
        last = asyncio.ensure_future(take_turn(sharing, touches=True))
        await asyncio.sleep(0)
        assert turn.connection is not None
        first = asyncio.ensure_future(turn.settle(settlement()))
        await asyncio.sleep(0)  # it has passed its turn on, and `last` has not begun with it
        last.cancel()

        assert (await asyncio.wait_for(first, 30)).outcome == "settled"
    assert pool.said[-1] == "committed"


async def test_when_a_completion_is_impossible_everything_is_undone_and_all_are_told():
    async def settle_but_one(_, settlements):
        return [Settled("lost" if n else "settled", (), ()) for n, _ in enumerate(settlements)]

    pool = FakePool()
    sharing = Sharing(pool, 2, settle_but_one)

    got = await asyncio.gather(
        *(take_turn(sharing, touches=True) for _ in range(2)), return_exceptions=True
    )

    assert [type(each) for each in got] == [SharingUndone, SharingUndone]
    assert pool.said[-1] == "undone"


async def test_a_connection_is_lent_for_a_turn_only():
    sharing = Sharing(FakePool(), 2, settle_all)
    async with SharedTurn(sharing) as turn:
        await turn.settle(settlement())

        with pytest.raises(SharingUndone):
            _ = turn.connection
