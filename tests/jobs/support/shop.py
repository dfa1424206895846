"""The jobs that the tests run: a shop that charges and ships, and some that misbehave.

What a test wants to know of a handler, or wants it to do, goes through `Stage`: one per test run,
emptied by whoever uses it.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
from pydantic import BaseModel, PositiveInt

from skep.jobs import Continue, Ctx, Fail, JobTypes, Limits, Ref, Reschedule, Retry

shop = JobTypes("shop")
QUICK = Retry(max_attempts=3, initial_s=0.01, jitter=0)


@dataclass
class Stage:
    """What handlers leave for a test, and what a test tells handlers."""

    seen: list[Any] = field(default_factory=list)
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    may_leave: asyncio.Event = field(default_factory=asyncio.Event)
    plan: dict[str, Any] = field(default_factory=dict)


stage = Stage()


def new_stage(**plan):
    """Begin anew; events belong to the loop of the test."""
    stage.__dict__.update(Stage(plan=plan).__dict__)
    return stage


@dataclass(frozen=True)
class Order:
    number: int


class Parcel(msgspec.Struct):
    order: int
    receipt: str


class Weight(BaseModel):
    grams: PositiveInt


@dataclass
class Basket:
    title: str
    parts: list[Ref[int]]


@shop.job("ship")
async def ship(ctx: Ctx[Parcel, str]) -> str:
    return f"{ctx.input.order} shipped for {ctx.input.receipt}"


@shop.job("charge")
async def charge(ctx: Ctx[Order, str]) -> str | Continue[str]:
    return Continue(ship, Parcel(ctx.input.number, f"receipt {ctx.input.number}"))


@shop.job("price", retry=QUICK)
async def price(ctx: Ctx[int, int]) -> int:
    stage.seen.append(ctx.input)
    return ctx.input


@shop.job("total")
async def total(ctx: Ctx[Basket, int]) -> int:
    return sum(ctx.value(part) for part in ctx.input.parts)


@shop.job("weigh")
async def weigh(ctx: Ctx[Weight, Weight]) -> Weight:
    return Weight(grams=ctx.input.grams * 2)


@shop.job("count down")
async def count_down(ctx: Ctx[int, str]) -> str | Continue[str]:
    if ctx.input == 0:
        return f"done at position {ctx.facts.position}"
    return Continue(count_down, ctx.input - 1)


@shop.job("hold", retry=QUICK)
async def hold(ctx: Ctx[int, str]) -> str:
    """Run until the test lets it go."""
    stage.entered.set()
    try:
        await stage.may_leave.wait()
    except asyncio.CancelledError:
        stage.seen.append(ctx.cancelled)
        raise
    return "left"


@shop.job("break", retry=QUICK)
async def break_down(ctx: Ctx[str, str]) -> str:
    stage.seen.append(ctx.attempt)
    raise RuntimeError(ctx.input)


@shop.job("give up", retry=QUICK)
async def give_up(ctx: Ctx[str, str]) -> str:
    raise Fail(ctx.input)


@shop.job("later", retry=QUICK)
async def later(ctx: Ctx[float, str]) -> str:
    if ctx.attempt == 1:
        raise Reschedule(after=timedelta(seconds=ctx.input))
    return f"attempt {ctx.attempt}, failures {ctx.facts.failures}"


@shop.job("slow", retry=QUICK, timeout=timedelta(milliseconds=20))
async def slow(ctx: Ctx[None, str]) -> str:
    await asyncio.Event().wait()
    return "never"


@shop.job("atomic", mode="atomic", retry=QUICK)
async def atomic(ctx: Ctx[int, int]) -> int:
    await ctx.connection.execute("insert into note values ($1)", ctx.input)
    if stage.plan.get("fails at attempt") == ctx.attempt:
        await ctx.connection.execute("select 1 / 0")
    stage.entered.set()
    if stage.plan.get("holds"):
        await stage.may_leave.wait()
    return ctx.input


@shop.job("staged", retry=QUICK)
async def staged(ctx: Ctx[int, int]) -> int | Continue[int]:
    """Write a note in each phase; break in the one that the test names, in the first attempt."""
    breaks = stage.plan.get("breaks") if ctx.attempt == 1 else None
    async with ctx.prepare() as connection:
        await connection.execute("insert into note values ($1)", ctx.attempt * 10 + 1)
        if breaks == "in prepare":
            await connection.execute("select 1 / 0")
    if breaks == "between":
        raise RuntimeError(breaks)
    async with ctx.complete() as connection:
        await connection.execute("insert into note values ($1)", ctx.attempt * 10 + 2)
        if breaks == "in complete":
            await connection.execute("select 1 / 0")
    if breaks == "after complete":
        raise RuntimeError(breaks)
    return Continue(price, ctx.input) if stage.plan.get("continues") else ctx.input


@shop.sync_job("thread", retry=QUICK)
def in_thread(ctx: Ctx[int, int]) -> int:
    return ctx.input + 1


@shop.sync_job("process", executor="process", retry=QUICK)
def in_process(ctx: Ctx[int, int]) -> int:
    import os

    return ctx.input + os.getpid()


@shop.job("limited", limits=Limits(concurrency=1))
async def limited(ctx: Ctx[int, int]) -> int:
    stage.plan["now"] = stage.plan.get("now", 0) + 1
    stage.seen.append(stage.plan["now"])
    await asyncio.sleep(0)
    stage.plan["now"] -= 1
    return ctx.input
