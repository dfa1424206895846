"""Ask routes that answer from what workers report now and then."""

import asyncio
import json


async def ask(client, path, status=200, method="GET"):
    answer = await client.call(method, path)
    assert answer.status == status, answer
    return json.loads(answer.body)


async def ask_until(client, path, is_there):
    """Ask again and again until the answer says what is waited for; return it."""
    async with asyncio.timeout(10):
        while not is_there(found := await ask(client, path)):
            pass
    return found
