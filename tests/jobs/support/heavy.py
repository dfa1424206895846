"""Jobs that keep threads and processes busy, until a test lets them go or they are ended.

A process reads a pipe with a name that the test writes to: no other object reaches it.
"""

import os
import signal
import threading
from datetime import timedelta
from pathlib import Path

from skep.jobs import Continue, Ctx, JobTypes, Reschedule, Retry
from tests.jobs.support.shop import stage

heavy = JobTypes("heavy")
QUICK = Retry(max_attempts=3, initial_s=0.01, jitter=0)
ONCE = Retry(max_attempts=1)

may_end = threading.Event()


@heavy.sync_job("read", executor="process", retry=ONCE)
def read(ctx: Ctx[str, str]) -> str:
    Path(f"{ctx.input}.entered").touch()
    return Path(ctx.input).read_text()


@heavy.sync_job("stuck", executor="process", retry=ONCE, timeout=timedelta(milliseconds=50))
def stuck(ctx: Ctx[str, str]) -> str:
    return Path(ctx.input).read_text()


@heavy.sync_job("quick", executor="process", retry=ONCE, timeout=timedelta(milliseconds=500))
def quick(ctx: Ctx[int, int]) -> int:
    return ctx.input


@heavy.sync_job("killed", executor="process", retry=QUICK)
def killed(ctx: Ctx[None, int]) -> int:
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


@heavy.sync_job("later in a process", executor="process", retry=ONCE)
def later(ctx: Ctx[None, int]) -> int | Continue[int]:
    if ctx.attempt == 1:
        raise Reschedule(after=timedelta(0))
    return Continue(quick, ctx.attempt)


class Unpicklable(Exception):
    """Cannot be made again from its arguments."""

    def __init__(self, *, number: int) -> None:
        super().__init__(f"number {number}")


@heavy.sync_job("odd", executor="process", retry=ONCE)
def odd(ctx: Ctx[str, int]) -> int:
    if ctx.input == "exit":
        raise SystemExit(7)
    raise Unpicklable(number=7)


@heavy.sync_job("wait", retry=QUICK, timeout=timedelta(milliseconds=200))
def wait(ctx: Ctx[None, int]) -> int:
    if ctx.attempt == 1:
        may_end.wait(60)
    return ctx.attempt


@heavy.job("light", retry=ONCE)
async def light(ctx: Ctx[int, int]) -> int:
    return ctx.input


@heavy.job("hold a connection", retry=ONCE)
async def hold_connection(ctx: Ctx[int, int]) -> int:
    async with ctx.prepare():
        stage.entered.set()
        await stage.may_leave.wait()
    return ctx.input


@heavy.job("brief", mode="atomic", retry=ONCE, timeout=timedelta(milliseconds=500))
async def brief(ctx: Ctx[int, int]) -> int:
    return ctx.input
