# ruff: noqa: T201 (it talks to the person who runs it)
"""Push orders and bill them: the smallest program with both sides.

python examples/push_and_consume.py http://127.0.0.1:6632
"""

import asyncio
import sys

from skep.client import AsyncClient, by_field

ORDERS = [{"customer": f"customer-{number % 3}", "total": number * 10} for number in range(12)]


async def main(url: str) -> None:
    """Push, then consume."""
    async with AsyncClient(url) as client:
        results = await client.push_many("orders", ORDERS, partition=by_field("customer"))
        print(f"stored {results.counts.queued} orders")
        async for message in client.consume("orders", group="billing", limit=len(ORDERS)):
            print(f"{message.partition}: {message.data['total']}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
