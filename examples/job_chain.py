# ruff: noqa: T201 (it talks to the person who runs it)
"""Orders that are charged, packed and shipped by a chain of jobs, in the shop's own database.

    skep migrate --database-url postgresql://...
    python examples/job_chain.py postgresql://...

Two parts are fetched side by side; packing waits for both and gets what they yielded. The charge is
written in the transaction that completes its job, so a worker that dies between the two charges
no order twice. `skep worker examples.job_chain:shop` runs the same jobs in a process of its own.
"""

import asyncio
import sys
from dataclasses import dataclass

import asyncpg

from skep.jobs import Continue, Ctx, JobClient, JobTypes, Ref, Retry, Start, Worker

shop = JobTypes("shop")


@dataclass
class Order:
    """What is to be packed, and the chains that fetch its parts."""

    number: int
    parts: list[Ref[str]]


@dataclass
class Parcel:
    """What is to be sent."""

    order: int
    contents: list[str]


@shop.job("fetch", retry=Retry(max_attempts=5))
async def fetch(ctx: Ctx[str, str]) -> str:
    """Get one part from the shelf."""
    return ctx.input.upper()


@shop.job("ship", mode="atomic", together=20)
async def ship(ctx: Ctx[Parcel, str]) -> str:
    """Note what is sent; quick, and the row is its own, so it may share a transaction."""
    await ctx.connection.execute("insert into shipped values ($1)", ctx.input.order)
    return f"order {ctx.input.order}: {' and '.join(ctx.input.contents)}"


@shop.job("pack")
async def pack(ctx: Ctx[Order, str]) -> str | Continue[str]:
    """Charge, and go on with the parcel: both, or neither."""
    contents = [ctx.value(part) for part in ctx.input.parts]
    async with ctx.complete() as connection:
        await connection.execute("insert into charged values ($1)", ctx.input.number)
        return Continue(ship, Parcel(ctx.input.number, contents))


async def order(client: JobClient, connection: asyncpg.Connection, number: int) -> str:
    """Place one order in a transaction of the shop's, and wait for its parcel."""
    async with connection.transaction():
        await connection.execute("insert into ordered values ($1)", number)
        parts = await client.start_many(
            [Start(fetch, name) for name in ("honey", "wax")], tx=connection
        )
        refs = [part.ref for part in parts]
        chain = await client.start(pack, Order(number, refs), key=f"{number}", tx=connection)
    return await chain.result(timeout=30)


async def main(url: str) -> None:
    """Place some orders and show what became of them."""
    connection = await asyncpg.connect(url)
    for table in ("ordered", "charged", "shipped"):
        await connection.execute(f"create table if not exists {table} (number integer)")
    async with JobClient(url, types=[shop]) as client, Worker(client, [shop]):
        for number in range(3):
            print(await order(client, connection, number))
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
