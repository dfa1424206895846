"""What the checkers must reject: the lines marked so, and no other. Never run."""

from typing import Any

from skep.jobs import Continue, Ctx, JobClient, JobTypes, Ref, Start
from tests.typecheck.accepted import Order, Parcel, Receipt, Report, charge, report, ship

shop = JobTypes("wrong")


@shop.job("continues with the wrong input")
async def wrong_input(ctx: Ctx[Order, Receipt]) -> Receipt | Continue[Receipt]:
    return Continue(ship, ctx.input)  # rejected


@shop.job("continues to a chain that yields something else")
async def wrong_chain(ctx: Ctx[Order, Receipt]) -> Receipt | Continue[Receipt]:
    return Continue(report, Report("x", []))  # rejected


@shop.job("returns something else")
async def wrong_output(ctx: Ctx[Order, Receipt]) -> Receipt | Continue[Receipt]:
    return "paid"  # rejected


async def use(client: JobClient, text: Ref[str]) -> None:
    await client.start(charge, Parcel(1, "r"))  # rejected
    await client.start(charge, 1)  # rejected
    chain = await client.start(charge, Order(1))
    number: int = await chain.result()  # rejected
    Report("x", [text])  # rejected
    Start(ship, Order(1))  # rejected
    async with client.resolve(chain.id, charge) as pending:
        pending.finish("paid")  # rejected
        pending.go_on(Continue(report, Report("x", [])))  # rejected
    assert number


def read(ctx: Ctx[Any, Any], ref: Ref[Receipt]) -> str:
    return ctx.value(ref)  # rejected
