"""Replays that are ordered over HTTP, the worker for them, and how to stop both where it hurts."""

import asyncio

from skep.jobs import JobClient, Worker
from skep.replay_worker import replay_app
from skep.settings import Settings

HOLD_TARGET = "select from skep.queue where name = $1 for update"
"""Lets a replay stage all, and commit nothing."""
COMMITTING = (
    "select pid from pg_stat_activity where query ~ 'commit_sink' and wait_event_type = 'Lock'"
)
HOLD_TASKS = "lock table skep.segment, skep.staged_segment in exclusive mode"
"""Lets a replay read all, and stage nothing."""
STAGING = "select pid from pg_stat_activity where query ~* '^copy' and wait_event_type = 'Lock'"


async def start_replay(ask, order, **members):
    """Order a replay; return its id."""
    return (await ask("POST", "/replays", {**order, **members}, status=202))["id"]


async def ended_replay(ask, replay_id):
    """Wait for the end of a replay; return what is told of it."""
    async with asyncio.timeout(200):
        while (await ask.result(replay_id, timeout_s=5))["state"] == "open":
            pass
    return await ask("GET", f"/replays/{replay_id}")


async def start_replay_worker(stack, broker, spark, lease_s=10.0):
    """Start a worker as `skep worker` does, in this process; it ends with the stack."""
    program = replay_app(session=lambda: spark, settings=Settings())
    jobs = await stack.enter_async_context(JobClient(broker.database_url))
    await stack.enter_async_context(program.lifespan(jobs))
    worker = Worker(jobs, program.registries, poll_s=1.0, lease_s=lease_s)
    await worker.start()
    stack.push_async_callback(worker.stop, grace_s=1)
    return worker


async def until_found(sql, query):
    """Ask until there is an answer; return it."""
    async with asyncio.timeout(200):
        while not (found := await sql.fetch(query)):
            await sql.execute("select pg_sleep(0.05)")  # Spark needs the processor more than we do
    return found
