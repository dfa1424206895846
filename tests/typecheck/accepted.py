"""What the checkers must accept, and what they must infer. Never run."""

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

from skep.jobs import Chain, Continue, Ctx, Job, JobClient, JobTypes, Ref, Start


@dataclass(frozen=True)
class Order:
    number: int


@dataclass(frozen=True)
class Parcel:
    order: int
    receipt: str


@dataclass(frozen=True)
class Receipt:
    is_paid: bool


@dataclass(frozen=True)
class Report:
    title: str
    sources: list[Ref[Receipt]]


shop = JobTypes("shop")


@shop.job("charge", timeout=timedelta(seconds=60))
async def charge(ctx: Ctx[Order, Receipt]) -> Receipt | Continue[Receipt]:
    async with ctx.prepare() as connection:
        await connection.fetchval("select 1")
    async with ctx.complete() as connection:
        if ctx.input.number > 0:
            return Continue(ship, Parcel(ctx.input.number, "r"), after=timedelta(hours=1))
        return Continue(charge, Order(1))


@shop.job("ship")
async def ship(ctx: Ctx[Parcel, Receipt]) -> Receipt:
    return Receipt(is_paid=bool(ctx.input.receipt))


@shop.job("report", mode="atomic")
async def report(ctx: Ctx[Report, str]) -> str:
    values = [ctx.value(source) for source in ctx.input.sources]
    assert_type(values, list[Receipt])
    await ctx.connection.execute("select 1")
    return ctx.input.title


@shop.sync_job("resize", executor="process")
def resize(ctx: Ctx[int, bytes]) -> bytes | Continue[bytes]:
    return Continue(resize, ctx.input - 1) if ctx.input else b""


elsewhere = shop.declare("elsewhere", Order, Receipt)

assert_type(charge, Job[Order, Receipt])
assert_type(ship, Job[Parcel, Receipt])
assert_type(resize, Job[int, bytes])
assert_type(elsewhere, Job[Order, Receipt])


async def use(client: JobClient, connection: object) -> None:
    chain = await client.start(charge, Order(1), tx=connection, key="order 1")
    assert_type(chain, Chain[Receipt])
    assert_type(await chain.result(timeout=30), Receipt)
    assert_type(chain.ref, Ref[Receipt])

    title = await client.start(report, Report("all", [chain.ref]), blockers=[chain.ref])
    assert_type(await title.result(), str)

    many = await client.start_many([Start(charge, Order(n)) for n in range(3)])
    assert_type(many, list[Chain[Receipt]])

    async with client.resolve(chain.id, charge) as pending:
        assert_type(pending.input, Order)
        pending.finish(Receipt(is_paid=True))
        pending.go_on(Continue(ship, Parcel(1, "r")))
