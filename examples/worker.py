# ruff: noqa: T201 (it talks to the person who runs it)
"""A worker that bills orders, with retries, dead letters and an exactly-once hand-over.

    python examples/worker.py http://127.0.0.1:6632

It runs until Ctrl-C; `--until-idle` ends it when there is nothing left to do.
"""

import asyncio
import sys

from skep.client import AsyncClient, AsyncMessage, DeadLetterMessage


async def main(url: str, *flags: str) -> None:
    """Work until stopped."""
    async with AsyncClient(url) as client:

        @client.worker(
            "orders",
            group="invoicing",
            concurrency=4,
            idle_s=1.0 if "--until-idle" in flags else None,
        )
        async def invoice(message: AsyncMessage) -> None:
            order = message.data
            if order["total"] < 0:
                raise DeadLetterMessage("an order cannot be negative")
            async with client.transaction() as transaction:
                transaction.ack(message)
                transaction.push(
                    "invoices", {"amount": order["total"]}, partition=message.partition
                )

        await invoice.run()
        print(f"handled {invoice.handled} orders")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
