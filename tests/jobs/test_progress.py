"""Handlers say how far they got, and people see it."""

import asyncio

import pytest

from skep.jobs import Ctx, JobTypes
from skep.jobs.client.inspection import JobFilter
from skep.jobs.declare.context import JobFacts
from skep.jobs.identifiers import new_id
from skep.model.errors import BadRequest, Refused
from tests.sql.support.waiting import eventually

PROGRESS = "select share, note from skep.job_progress where job_id = $1"


def context_in_a_process():
    facts = JobFacts("talk", new_id(), new_id(), position=0, attempt=1, failures=0)
    return Ctx(facts, None, [])


async def until_reported(sql, job_id):
    return tuple(await eventually(lambda: sql.fetchrow(PROGRESS, job_id)))


@pytest.mark.parametrize("kind", ["loop", "thread"])
async def test_what_a_handler_says_is_shown_while_it_runs(client, start_worker, sql, kind):
    types, may_leave = JobTypes("talkative"), asyncio.Event()
    loop = asyncio.get_running_loop()

    @types.job("talk in loop")
    async def talk_in_loop(ctx: Ctx[None, str]) -> str:
        ctx.report(0.5, "half of it")
        await may_leave.wait()
        return "done"

    @types.sync_job("talk in thread")
    def talk_in_thread(ctx: Ctx[None, str]) -> str:
        ctx.report(0.5, "half of it")
        asyncio.run_coroutine_threadsafe(may_leave.wait(), loop).result()
        return "done"

    await start_worker(types)
    chain = await client.start(talk_in_loop if kind == "loop" else talk_in_thread, None)

    assert await until_reported(sql, chain.id) == (0.5, "half of it")

    (row,) = (await client.inspection.jobs(JobFilter(chain_id=chain.id))).items
    assert (row.progress, row.progress_note) == (0.5, "half of it")
    may_leave.set()
    assert await chain.result(timeout=20) == "done"


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_a_share_is_a_share(share):
    with pytest.raises(BadRequest):
        context_in_a_process().report(share)


def test_a_handler_in_a_process_reports_to_no_one_and_has_no_transaction():
    context = context_in_a_process()

    context.report(0.5, "half of it")
    context.check()
    assert context.cancelled is None
    for use in (lambda: context.connection, context.prepare, context.complete):
        with pytest.raises(Refused, match="open your own"):
            use()
