"""Wait for what only asking can tell, such as who waits for a lock inside PostgreSQL."""

import asyncio

PATIENCE_S = 15


async def eventually(ask):
    """Ask until there is a true answer, and return it."""
    async with asyncio.timeout(PATIENCE_S):
        while not (answer := await ask()):
            await asyncio.sleep(0.005)
    return answer
