"""Wait for what only asking can tell, such as who waits for a lock inside PostgreSQL."""

import asyncio
from inspect import isawaitable

PATIENCE_S = 60
"""Only what hangs must not go on for ever: a process that takes a second to start takes a minute
where others use the machine too."""
PAUSE_S = 0.005


async def eventually(ask):
    """Ask, a function or a coroutine, until there is a true answer, and return that."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = ask()
            if isawaitable(answer):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(PAUSE_S)
