"""Jobs that the browser watches: a bicycle that is built in steps, and parts that it waits for."""

import asyncio
import inspect
import linecache
from contextlib import AsyncExitStack, asynccontextmanager

from skep.jobs import Continue, Ctx, JobTypes, Retry
from tests.api.support.job_calls import Asking, start_worker
from tests.sql.support.waiting import eventually

workshop = JobTypes("workshop")


class Doors:
    """What holds handlers up until a test lets them go on; they belong to the test's loop."""

    def __init__(self):
        self._doors = {}

    def of(self, name):
        return self._doors.setdefault(name, asyncio.Event())

    def open(self, name):
        self.of(name).set()


doors = Doors()


@workshop.job("paint")
async def paint(ctx: Ctx[str, str]) -> str:
    await doors.of(f"paint {ctx.input}").wait()
    return f"a {ctx.input} bicycle"


@workshop.job("weld")
async def weld(ctx: Ctx[str, str]) -> str | Continue[str]:
    await doors.of(f"weld {ctx.input}").wait()
    return Continue(paint, ctx.input)


@workshop.job("fetch wheels")
async def fetch_wheels(ctx: Ctx[str, str]) -> str:
    await doors.of(f"wheels {ctx.input}").wait()
    return "two wheels"


def as_deployed(handler):
    """Let tracebacks show a handler where it lies when deployed, not where it lies here."""
    name = "/app/workshop/bells.py"
    code = handler.__code__
    lines, first = inspect.getsourcelines(handler)
    linecache.cache[name] = (0, None, ["\n"] * (first - 1) + lines, name)
    handler.__code__ = code.replace(co_filename=name)
    return handler


@workshop.job("polish", retry=Retry(max_attempts=2, initial_s=0.01, jitter=0))
@as_deployed
async def polish(ctx: Ctx[str, str]) -> str:
    if not doors.of(f"polish {ctx.input}").is_set():
        raise RuntimeError(f"out of wax for {ctx.input}")
    return "shiny"


@workshop.job("assemble")
async def assemble(ctx: Ctx[str, str]) -> str:
    return f"a {ctx.input}"


@asynccontextmanager
async def working(broker, client):
    """A worker that runs these jobs while the block does; yields a way to ask the routes."""
    async with AsyncExitStack() as stack:
        await start_worker(stack, broker, workshop)
        yield Asking(client)


async def build(ask, colour):
    """Start a bicycle that waits for its wheels; return the id of its chain."""
    wheels = await ask.start("fetch wheels", colour)
    return await ask.start("weld", colour, blockers=[wheels], key=f"bicycle-{colour}")


async def fail_an_order(ask, order):
    """Fail a chain through one of the parts that were made at the same time; return its id."""
    for job in ("wheels", "weld", "paint"):
        doors.open(f"{job} tandem")
    parts = [
        await ask.start("fetch wheels", "tandem"),
        await ask.start("weld", "tandem"),
        await ask.start("polish", f"the bell of {order}", maxAttempts=2),
    ]
    chain_id = await ask.start(
        "assemble", "tandem", blockers=parts, onBlockerFailure="fail", key=order
    )
    assert (await ask.result(chain_id))["state"] == "failed"
    return chain_id


async def until_at(ask, chain_id, job):
    """Return once a chain has come to a job."""

    async def is_there():
        return (await ask("GET", f"/chains/{chain_id}"))["lastJobType"] == job

    await eventually(is_there)


async def fill_workshop(broker, client):
    """Leave something of every kind: done, failed, waiting, by the clock."""
    async with working(broker, client) as ask:
        for colour in ("red", "blue", "green"):
            for job in ("wheels", "weld", "paint"):
                doors.open(f"{job} {colour}")
            await ask.result(await build(ask, colour))
        await fail_an_order(ask, "order-48097")
        for job in ("wheels", "weld"):
            doors.open(f"{job} yellow")
        await until_at(ask, await build(ask, "yellow"), "paint")
    await ask.start("fetch wheels", "black", delaySeconds=3600)
    times = {"type": "fetch wheels", "cron": "0 6 * * 1", "timezone": "Europe/Rome"}
    await ask("PUT", "/schedules/weekly%20delivery", times)
