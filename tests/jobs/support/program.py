"""A program whose jobs `skep worker` runs."""

from contextlib import asynccontextmanager

from skep.jobs import Ctx, JobTypes, Schedule, WorkerApp

types = JobTypes("program")
shared = {}


@types.job("greet")
async def greet(ctx: Ctx[str, str]) -> str:
    return f"{shared['word']} {ctx.input}"


@types.job("wait for ever")
async def wait_for_ever(ctx: Ctx[None, None]) -> None:
    import asyncio

    await asyncio.Event().wait()


@asynccontextmanager
async def lifespan(client):
    shared["word"] = "hello"
    yield
    shared.clear()


app = WorkerApp(
    [types],
    schedules=[Schedule("yearly", greet, "year", cron="0 0 1 1 *")],
    lifespan=lifespan,
)
nothing = 7
